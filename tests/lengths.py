"""How many examples a law is tried on: few of the same every time, or with MTPFIX_LONG=1 ten thousand that are new; and
at which steps something is killed.

MTPFIX_LONG=500 tries 500, where ten thousand would take too long.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONG = int(os.environ.get("MTPFIX_LONG") or 0)
EXAMPLES = LONG if LONG > 1 else 10_000


def many(short: int) -> settings:
    """The settings of a law that the short run tries so often."""
    return settings(
        max_examples=max(short, EXAMPLES) if LONG else short,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=not LONG,
    )


def steps(most: int, first: int = 0) -> range:
    """Each step, or in the short run every third, from this one on: not the same for all that is killed."""
    return range(most) if LONG else range(first % 3, most, 3)
