"""What the command line and other programs call: read, analyse, write.

`mtpfix` itself offers `check`, `plan`, `apply`, `ensure` and `undo` from here. What only a writer needs is imported
when something is written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from mtpfix import analysis
from mtpfix.checkpoint.local import read_local
from mtpfix.errors import FindingsError, UsageError
from mtpfix.model import Checkpoint, DecisionRow, Plan, Report

if TYPE_CHECKING:
    from mtpfix.analysis import DraftRow
    from mtpfix.override import Override

Pathish = str | os.PathLike[str]
Scope = Literal["mtp", "all"]
JOURNAL = ".mtpfix-journal.json"


def check(path: Pathish, *, engines: Sequence[str] = (), scope: Scope = "mtp", unsafe: bool = False) -> Report:
    """Everything that is known of a checkpoint directory; the checkpoint is not changed.

    engines  what a plan must satisfy: `vllm>=0.24`, `sglang`; none: every modelled release
    scope    `all`: every module; `mtp`: the draft, and what stops the target from loading
    unsafe   the plan holds the unsafe fixes too

    Raises UnreadableError where nothing can be concluded, UsageError for an engine that is none.
    """
    return analysis.analyse(_read(path), engines=tuple(engines), scope=scope, unsafe=unsafe)


def plan(report: Report) -> Plan:
    """The repair of a checked checkpoint, ready for `apply`; without edits where there is nothing to do."""
    return replace(report.plan, source=report.source)


def apply(repair: Plan | Report) -> tuple[str, ...]:
    """Write a plan, all files or none; the names of the files that changed.

    Raises ConflictError where a file is no longer the one that was checked, WriteError where it cannot be
    written; then nothing changed. UsageError for a plan that `plan` did not make.
    """
    chosen = plan(repair) if isinstance(repair, Report) else repair
    if chosen.source is None:
        raise UsageError("the plan belongs to no checkpoint", hint="make it with mtpfix.plan(report)")
    if chosen.source.kind != "local":
        raise UsageError("only a directory can be changed", subject=chosen.source.id)
    from mtpfix import store

    record = store.apply_files(chosen.source.id, chosen.before, chosen.after)
    return tuple(change.name for change in record.changes) if record else ()


def ensure(path: Pathish, *, engines: Sequence[str] = (), scope: Scope = "mtp") -> Report:
    """Repair what is safely repairable and look again: the report of a checkpoint without errors.

    Raises FindingsError, which carries the report, where errors remain.
    """
    report = check(path, engines=engines, scope=scope)
    if report.plan.edits:
        apply(report)
        report = check(path, engines=engines, scope=scope)
    if report.status != "clean":
        raise FindingsError(report)
    return report


def undo(path: Pathish) -> tuple[str, ...]:
    """Take the last apply on a directory back, byte for byte; the names of the files that changed.

    Raises UsageError where there is nothing to take back, ConflictError where a file was changed since.
    """
    from mtpfix import store

    return tuple(change.name for change in store.undo(os.fspath(path)).changes)


def explain(path: Pathish, patterns: Sequence[str], *, engines: Sequence[str] = ()) -> tuple[DecisionRow, ...]:
    """What each engine decides about the modules that the patterns mean. UsageError where one means none."""
    return analysis.explain(_read(path), tuple(patterns), engines=tuple(engines))


def override(path: Pathish, engine: str) -> Override:
    """The flags to serve a checkpoint with as if it were repaired, or why none can do it; `engine`: vllm or sglang."""
    from mtpfix import override as flags

    return flags.override(_read(path), engine)


def draft_tensors(path: Pathish) -> tuple[DraftRow, ...]:
    """The draft's tensors, in the order of the files."""
    return analysis.draft_rows(_read(path))


def diff_of(repair: Plan) -> str:
    """A plan as a unified diff."""
    from mtpfix import diff

    return diff.unified(repair.before, repair.after)


def _read(path: Pathish) -> Checkpoint:
    """The checkpoint; a write that was killed half-way is finished or taken back first."""
    folder = os.fspath(path)
    if os.path.lexists(os.path.join(folder, JOURNAL)):
        from mtpfix import store

        store.recover(folder)
    return read_local(folder)
