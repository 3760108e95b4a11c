"""What the command line and other programs call: read, analyse, write.

`mtpfix` itself offers `check`, `plan`, `apply`, `ensure`, `graft` and `undo` from here. What only a writer needs is
imported when something is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from mtpfix.checkpoint import opening
from mtpfix.checkpoint.access import Access
from mtpfix.checkpoint.jsonfiles import CONFIG
from mtpfix.checkpoint.second import Second
from mtpfix.checkpoint.source import parse, spelled
from mtpfix.checkpoint.stand import has_journal, stand_of
from mtpfix.errors import FindingsError, UnreadableError, UsageError
from mtpfix.frozen import replace
from mtpfix.model import Checkpoint, Explanation, JsonFile, Plan, Report, Source
from mtpfix.names import shown

if TYPE_CHECKING:
    from mtpfix.analysis import DraftRow
    from mtpfix.grafting.plan import GraftPlan
    from mtpfix.grafting.ready import Ready
    from mtpfix.hub.pull_request import Outcome
    from mtpfix.override import Override
    from mtpfix.store.states import Large, Overwrite, Stamp, UndoRecord
    from mtpfix.store.way_back import Way

T = TypeVar("T")
Pathish = str | os.PathLike[str]
Scope = Literal["mtp", "all"]

_LOOKS = 3  # at a directory that changes while it is read
_TEXTS = {
    "engines": "write 'vllm>=0.24', or several in a list",
    "modules": "write a pattern such as 'mtp.**', or several in a list",
    "names": "write a module such as 'mtp.fc', or several in a list",
}
_A_DIRECTORY = "`hf download` makes a directory of a repository"


def check(
    source: Pathish,
    *,
    engines: Sequence[str] = (),
    scope: Scope = "mtp",
    unsafe: bool = False,
    atlas: bool = False,
    access: Access | None = None,
) -> Report:
    """Everything that is known of a checkpoint; the checkpoint is not changed.

    source   a directory, a bundle, `org/name[@revision]`, `hf://org/name[@revision]` or a web address of the Hub
    engines  what a plan must satisfy: `vllm>=0.24`, `sglang`, one or several; none: every modelled release
    scope    `all`: every module; `mtp`: the draft, and what stops the target from loading
    unsafe   the plan holds the unsafe fixes too
    atlas    the report holds the decisions on every module: what a map of the checkpoint needs
    access   revision, token and counters for a repository on the Hub

    Raises UnreadableError where nothing can be concluded, UsageError for an engine that is none.
    """
    chosen, access = _known(scope), access or Access()

    def study(checkpoint: Checkpoint) -> Report:
        from mtpfix import analysis

        return analysis.analyse(checkpoint, engines=each(engines), scope=chosen, unsafe=unsafe, atlas=atlas)

    def prepare(files: Mapping[str, JsonFile]) -> None:
        _prepare(files)
        access.meanwhile()

    def look(there: Source) -> Report:
        with Second(prepare, presumes=True) as second:
            try:
                report = study(opening.read(there, access, keep_index=unsafe, second=second))
            except Exception:  # of something presumed that is not so, nothing is said
                if second.confirmed():
                    raise
            else:
                if second.confirmed():
                    return report
        return study(opening.read(there, access, keep_index=unsafe))

    with opening.naming(spelled(source)):
        return _steady(parse(source, access.revision), look)


def plan(report: Report) -> Plan:
    """The repair of a checked checkpoint, ready for `apply`; without edits where there is nothing to do.

    Raises UsageError for what is no report.
    """
    if not isinstance(report, Report):
        raise UsageError(f"this is no report: {shown(report)}", subject="report", hint="make it with mtpfix.check")
    return replace(report.plan, source=report.source)


def apply(repair: Plan | Report) -> tuple[str, ...]:
    """Write a plan, all files or none; the names of the files that changed.

    Raises ConflictError where a file is no longer the one that was checked, WriteError where it cannot be
    written; then nothing changed. UsageError for a plan that `plan` did not make.
    """
    chosen = plan(repair) if isinstance(repair, Report) else repair
    if not isinstance(chosen, Plan) or chosen.source is None:
        raise UsageError("the plan belongs to no checkpoint", hint="make it with mtpfix.plan(report)")
    if chosen.source.kind != "local":
        raise UsageError("only a directory can be changed", subject=chosen.source.id, hint=_A_DIRECTORY)
    from mtpfix import store

    before: dict[str, bytes | Stamp | None] = {}
    after: dict[str, bytes | Large | Overwrite] = {}
    if chosen.renames:
        from mtpfix.renaming import prepared

        for shard, (stamp, new) in prepared(chosen.source.id, chosen.renames).items():
            before[shard], after[shard] = stamp, new
    created = chosen.index.file if chosen.index and chosen.index.created else ""
    before.update({name: None if name == created else raw for name, raw in chosen.before.items()})
    record = store.apply_files(chosen.source.id, before, {**after, **chosen.after})
    return tuple(change.name for change in record.changes) if record else ()


def ensure(
    path: Pathish,
    *,
    base: Pathish | None = None,
    rewrite: bool = False,
    engines: Sequence[str] = (),
    scope: Scope = "mtp",
    access: Access | None = None,
) -> Report:
    """Repair what is safely repairable and look again: the report of a checkpoint without errors.

    base     the checkpoint that was quantized, a directory or a repository: what the export left out of the draft or
             stored wrongly is restored from it first. That is never silent: the logger `mtpfix` warns of it, and it
             stands among the report's notes
    rewrite  shards are written again without the old copies of what is replaced
    access   for a base on the Hub

    Raises FindingsError, which carries the report, where errors remain; with a base also what `graft` raises.
    """
    restored = _restored(path, base, rewrite, engines, scope, access) if base is not None else ""
    report = check(path, engines=engines, scope=scope)
    if not report.plan.empty:
        apply(report)
        report = check(path, engines=engines, scope=scope)
    if restored:
        report = replace(report, notes=(restored, *report.notes))
    if report.status != "clean":
        raise FindingsError(report)
    return report


def _restored(
    path: Pathish, base: Pathish, rewrite: bool, engines: Sequence[str], scope: Scope, access: Access | None
) -> str:
    """Graft what is missing or stored wrongly; what was done, in words."""
    done = graft(path, base, rewrite=rewrite, engines=engines, scope=scope, access=access)
    if done.layout is None:
        return ""
    import logging

    from mtpfix.tokens import masked

    count = len(done.origins)
    words = f"{count} {'tensor' if count == 1 else 'tensors'} restored from {done.base.id} into {done.shard}"
    logging.getLogger("mtpfix").warning("%s", masked(f"{done.here.id}: {words}"))
    return words


def undo(path: Pathish, *, way: Way = "exact") -> tuple[str, ...]:
    """Take the last apply on a directory back, byte for byte; the names of the files that changed.

    way  where a JSON file was changed since. `exact`: nothing is taken back; `keep-edits`: only what the apply did is,
         and what was edited stays; `force`: the file becomes what it was, and what stands there is kept beside the
         undo records

    Raises UsageError where there is nothing to take back, ConflictError where a file was changed since and `way` does
    not help.
    """
    return tuple(change.name for change in undone(path, way=way).changes)


def undone(path: Pathish, *, way: Way = "exact", dry_run: bool = False) -> UndoRecord:
    """The same, with what each file was before and is no longer; with `dry_run` nothing is written."""
    from mtpfix import store
    from mtpfix.store.way_back import Way

    if way not in get_args(Way):
        raise UsageError(f"no such way: {way}", hint=f"one of {', '.join(get_args(Way))}")
    return store.undo(spelled(path), way, dry_run=dry_run)


def open_pr(
    source: Pathish,
    *,
    engines: Sequence[str] = (),
    scope: Scope = "mtp",
    unsafe: bool = False,
    message: str | None = None,
    force: bool = False,
    access: Access | None = None,
) -> Outcome:
    """Propose the repair of a repository on the Hub as one pull request; what became of it.

    source   `org/name[@branch]`, or its web address
    message  the title; None: one that says what changes
    force    open it although the same pull request was closed
    access   branch, token and counters

    The same repair is never proposed twice: `outcome.kind` is opened, updated, already-open, already-fixed or refused,
    `outcome.pull_request` the one that is open. Raises UsageError without a token and for what is no branch,
    UnreadableError where the repository cannot be read, WriteError where the Hub refuses.
    """
    from mtpfix.hub import pull_request
    from mtpfix.hub.remote import Remote, token_or_refusal

    access = access or Access()
    target = pull_request.require_branch(parse(source, access.revision))
    access = replace(access, token=token_or_refusal(access.token))
    found = read(source, access)
    wish = pull_request.Wish(found, each(engines), _known(scope), unsafe, target.revision, message, force)
    return pull_request.propose(Remote(target.id, access), pull_request.draft(wish))


def graft(
    path: Pathish,
    base: Pathish,
    *,
    modules: Sequence[str] = (),
    engines: Sequence[str] = (),
    scope: Scope = "mtp",
    dequantize: bool = False,
    rewrite: bool = False,
    dry_run: bool = False,
    access: Access | None = None,
) -> GraftPlan:
    """Restore the draft's tensors that a directory lacks or stores wrongly from its base checkpoint; what was done.

    base        a directory, or a repository on the Hub in any spelling that `check` takes; `access` is for that
    modules     patterns over module names that narrow what is restored
    dequantize  FP8 weights of the base become BF16; without it they are taken as they are or not at all
    rewrite     shards are written again without the old copies of what is replaced
    dry_run     nothing is written

    The plan's `layout` is None where there is nothing to restore; its `report` is that of the checkpoint afterwards.
    Raises RefusedError where the base does not fit or engines could not load what comes out, else as `check` and
    `apply`.
    """
    with grafting(
        path, base, modules=modules, engines=engines, scope=scope, dequantize=dequantize, rewrite=rewrite, access=access
    ) as ready:
        if not dry_run:
            ready.write()
        return ready.plan


@contextmanager
def grafting(
    path: Pathish,
    base: Pathish,
    *,
    modules: Sequence[str] = (),
    engines: Sequence[str] = (),
    scope: Scope = "mtp",
    dequantize: bool = False,
    rewrite: bool = False,
    access: Access | None = None,
) -> Iterator[Ready]:
    """A graft that is planned and can be written; see `graft`."""
    from mtpfix.grafting import plan as planned
    from mtpfix.grafting.ready import Ready, from_base
    from mtpfix.grafting.sources import drop_kept

    access = access or Access()
    here, there = parse(path), parse(base, access.revision)
    if here.kind != "local":
        raise UsageError("only a directory can be changed", subject=here.id, hint=_A_DIRECTORY)
    if there.kind == "bundle":
        raise UsageError(
            "a bundle holds no weights", subject=there.id, hint="give the base as a directory or repository"
        )
    if there.kind == "local" and os.path.realpath(there.id) == os.path.realpath(here.id):
        raise UsageError(
            "the base is the checkpoint itself", subject=there.id, hint="give the checkpoint that it was made from"
        )
    asked = planned.Asked(each(modules, "modules"), each(engines), _known(scope), dequantize, rewrite)
    with from_base(_mended(here), there, access) as (own, other, repository):
        plan = planned.plan(own, other, asked)
        if plan.layout is None:
            drop_kept(here.id)
        yield Ready(plan, own, other, repository)


def explain(
    source: Pathish, names: Sequence[str], *, engines: Sequence[str] = (), access: Access | None = None
) -> Explanation:
    """What each engine decides about the modules that some names mean, and how each name was understood.

    names  modules, patterns over them (`mtp.**`), tensors, or what an engine calls a module, as in its traceback

    Raises UsageError where one means no module.
    """
    from mtpfix import explaining

    with opening.naming(spelled(source)):
        return explaining.explain(read(source, access), each(names, "names"), engines=each(engines))


def override(source: Pathish, engine: str, *, access: Access | None = None) -> Override:
    """The flags to serve a checkpoint with as if it were repaired, or why none can do it.

    engine  `vllm`, `sglang`, `vllm==0.33.0`: of these releases the newest

    Raises UsageError where its flags are not known.
    """
    from mtpfix import override as flags

    with opening.naming(spelled(source)):
        return flags.override(read(source, access), engine)


def draft_tensors(source: Pathish, *, access: Access | None = None) -> tuple[DraftRow, ...]:
    """The draft's tensors, in the order of the files."""
    with opening.naming(spelled(source)):
        from mtpfix import analysis

        return analysis.draft_rows(read(source, access))


def diff_of(repair: Plan) -> str:
    """A plan as a unified diff; an index that changes in many lines is left out (`human.plan_text` tells of it)."""
    from mtpfix.output import human

    return human.diff_of(repair)


def config_diff(found: GraftPlan) -> str:
    """What a graft changes in the config files, as a unified diff; the index changes with every tensor."""
    from mtpfix import diff

    before = {name: raw for name, raw in found.before.items() if raw is not None and not name.endswith(".index.json")}
    return diff.unified(before, {name: found.after[name] for name in before})


def snapshot(source: Pathish, *, access: Access | None = None) -> bytes:
    """The checkpoint as a header bundle: JSON files and headers, no weights, no token.

    Raises UnreadableError where a file of it cannot be read.
    """
    from mtpfix.checkpoint.bundle import pack

    access = access or Access()

    def packed(there: Source) -> bytes:
        with opening.opened(there, access) as (found, files):
            return pack(found, files)

    with opening.naming(spelled(source)):
        return _steady(parse(source, access.revision), packed)


def read(source: Pathish, access: Access | None = None, *, keep_index: bool = False) -> Checkpoint:
    """The checkpoint of a source: headers and JSON files. Raises UsageError for what is no source.

    keep_index  of a directory or bundle the index is kept even where it says what the headers say
    """
    access = access or Access()
    with opening.naming(spelled(source)):
        look = partial(opening.read, access=access, keep_index=keep_index)
        return _steady(parse(source, access.revision), look)


def _prepare(files: Mapping[str, JsonFile]) -> None:
    """Import what an analysis needs, and a repair: that takes as long as some shards. So does the family's file."""
    import jsonpatch  # noqa: F401

    import mtpfix.analysis
    import mtpfix.diff
    import mtpfix.splice  # noqa: F401
    from mtpfix.families import identify

    identify(files[CONFIG].value)


def each(texts: str | Sequence[str], what: str = "engines") -> tuple[str, ...]:
    """Several texts; one that stands alone is one, not its letters. Raises UsageError for what is none."""
    try:
        found = (texts,) if isinstance(texts, str) else tuple(texts)
    except TypeError:
        found = (texts,)  # type: ignore[assignment]  # told below
    for text in found:
        if not isinstance(text, str):
            raise UsageError(
                f"`{what}` is a text or a list of texts, not {shown(text)}", subject=what, hint=_TEXTS[what]
            )
    return found


def _known(scope: Scope) -> Scope:
    """The scope. Raises UsageError for one that is none."""
    if scope not in get_args(Scope):
        raise UsageError(f"no such scope: {scope}", hint="'mtp' or 'all'")
    return scope


def _steady(source: Source, look: Callable[[Source], T]) -> T:
    """What is read of a source: of a directory, what stood there at one moment, not one file before somebody changed
    both and the other file after. Where that goes on and on, mtpfix at least writes nothing during the last look."""
    if source.kind != "local":
        return look(source)
    for _ in range(_LOOKS):
        _mended(source)
        before = stand_of(source.id)
        if has_journal(source.id):
            continue
        try:
            found = look(source)
        except UnreadableError:
            if stand_of(source.id) == before:
                raise
        else:
            if stand_of(source.id) == before:
                return found
    from mtpfix import store

    with store.quiet(source.id):
        return look(source)


def _mended(source: Source) -> Source:
    """The source; a write in a directory that was killed half-way is finished or taken back first."""
    if source.kind == "local" and has_journal(source.id):
        from mtpfix import store

        store.recover(source.id)
    return source
