"""mtpfix finds and repairs quantized LLM checkpoints whose config files lie about the weights.

    report = mtpfix.check("path/to/checkpoint")
    mtpfix.apply(mtpfix.plan(report))

    mtpfix.ensure("path/to/checkpoint")     # at the end of an export script

Names are imported when they are first used: `import mtpfix` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtpfix.api import apply, check, ensure, graft, open_pr, plan, undo
    from mtpfix.errors import (
        ConflictError,
        FindingsError,
        MtpfixError,
        RefusedError,
        UnreadableError,
        UsageError,
        WriteError,
    )
    from mtpfix.model import Finding, Plan, Report

__version__ = "0.1.0"

__all__ = [
    "ConflictError",
    "Finding",
    "FindingsError",
    "MtpfixError",
    "Plan",
    "RefusedError",
    "Report",
    "UnreadableError",
    "UsageError",
    "WriteError",
    "__version__",
    "apply",
    "check",
    "ensure",
    "graft",
    "open_pr",
    "plan",
    "undo",
]

_HOMES = {
    "mtpfix.api": ("apply", "check", "ensure", "graft", "open_pr", "plan", "undo"),
    "mtpfix.errors": (
        "ConflictError",
        "FindingsError",
        "MtpfixError",
        "RefusedError",
        "UnreadableError",
        "UsageError",
        "WriteError",
    ),
    "mtpfix.model": ("Finding", "Plan", "Report"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            # All at once: importing mtpfix.api also imports a submodule that is named like the function `plan`.
            found = import_module(home)
            globals().update({each: getattr(found, each) for each in names})
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
