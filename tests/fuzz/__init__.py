"""Coverage-guided fuzzing of what reads hostile bytes: see `__main__.py`."""
