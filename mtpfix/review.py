"""What another version of a checkpoint changes: in its files, in the engines' decisions, in the findings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from mtpfix import releases
from mtpfix.analysis import Scope, analyse
from mtpfix.asked import Wanted, wanted_releases
from mtpfix.checkpoint.index import INDEX
from mtpfix.checkpoint.index import SUFFIX as WEIGHTS
from mtpfix.checkpoint.jsonfiles import NAMES, parse_json
from mtpfix.decisions import judges, tables
from mtpfix.engines.registry import ENGINES
from mtpfix.formats import list_of
from mtpfix.frozen import dataclass
from mtpfix.model import Answer, Checkpoint, Finding, JsonFile, Part, Report
from mtpfix.output import matrix
from mtpfix.patch import pointer
from mtpfix.planning import editable, relevant
from mtpfix.world import World, world_of

FileKind = Literal["spelling", "lists", "config", "weights", "other"]
Effect = Literal["mends", "helps", "nothing", "harms"]
_MOST_POINTERS = 50


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that changes.

    kind      `spelling`: it says the same in other bytes · `lists`: only the lists of what is not quantized ·
              `config`: other parts of a JSON file that engines read, the index among them · `weights` · `other`
    pointers  where a JSON file changes, at most so many
    """

    name: str
    kind: FileKind
    pointers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """Modules that an engine decides otherwise, alike and in the same releases.

    right  whether the new decision fits what is stored
    """

    engine: str
    part: Part
    spans: tuple[tuple[str, str], ...]
    before: str
    after: str
    stored: str
    right: bool
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Review:
    """Two versions of a checkpoint, set against each other.

    mended, left, new     findings of severity error that go, stay and come
    decisions             those of the engines that are asked about
    newly_plain_quantized modules that are stored quantized and that any engine newly treats as plain
    """

    files: tuple[FileChange, ...]
    decisions: tuple[DecisionChange, ...]
    before: Report
    after: Report
    mended: tuple[Finding, ...]
    left: tuple[Finding, ...]
    new: tuple[Finding, ...]
    newly_plain_quantized: tuple[str, ...]

    @property
    def only_lists(self) -> bool:
        """Whether nothing but lists of what is not quantized changes."""
        return bool(self.files) and all(change.kind in ("lists", "spelling") for change in self.files)

    @property
    def effect(self) -> Effect:
        """What becomes of the findings: all go, some go, none goes, or something new is wrong."""
        if self.new or self.newly_plain_quantized:
            return "harms"
        if not self.mended:
            return "nothing"
        return "helps" if self.left else "mends"


def review(
    before: Checkpoint,
    after: Checkpoint,
    changed: Mapping[str, tuple[bytes | None, bytes | None]],
    *,
    engines: Sequence[str] = (),
    scope: Scope = "mtp",
) -> Review:
    """Set two versions of a checkpoint against each other.

    changed  every file that differs, with its bytes before and after where it is one of those that are read
    """
    old, new = (analyse(one, engines=engines, scope=scope) for one in (before, after))
    errors_before = {_key(one): one for one in old.findings if one.severity == "error"}
    errors_after = {_key(one): one for one in new.findings if one.severity == "error"}
    worlds = world_of(before), world_of(after)
    every = tuple(_decision_changes(*worlds, {name: frozenset(releases.modelled(name)) for name in ENGINES}))
    decisions = tuple(_decision_changes(*worlds, wanted_releases(engines, ""))) if engines else every
    return Review(
        files=tuple(_file_change(name, *pair) for name, pair in changed.items()),
        decisions=decisions,
        before=old,
        after=new,
        mended=tuple(one for key, one in errors_before.items() if key not in errors_after),
        left=tuple(one for key, one in errors_after.items() if key in errors_before),
        new=tuple(one for key, one in errors_after.items() if key not in errors_before),
        newly_plain_quantized=tuple(
            dict.fromkeys(
                name
                for change in every
                if change.before.startswith("quantized") and change.after == "plain" and not change.right
                for name in change.modules
            )
        ),
    )


def _key(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.part


# --- files ------------------------------------------------------------------------------------------------------------


def _file_change(name: str, old: bytes | None, new: bytes | None) -> FileChange:
    if name.endswith(WEIGHTS):
        return FileChange(name, "weights")
    if name == INDEX:
        return FileChange(name, "config", ("/weight_map",))
    if name not in NAMES:
        return FileChange(name, "other")
    one, other = _value(name, old), _value(name, new)
    pointers = tuple(_pointers(one, other))
    lists = (*_lists(name, one), *_lists(name, other))
    if not pointers:
        kind: FileKind = "spelling"
    else:
        kind = "lists" if all(_inside(place, lists) for place in pointers) else "config"
    return FileChange(name, kind, pointers[:_MOST_POINTERS])


def _value(name: str, raw: bytes | None) -> Any:
    return None if raw is None else parse_json(name, raw)[0].value


def _pointers(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Where two JSON values differ; a list counts as one place."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            inner = place + pointer(key)
            if key in old and key in new:
                yield from _pointers(old[key], new[key], inner)
            else:
                yield inner
    elif old != new or type(old) is not type(new):
        yield place


def _lists(name: str, value: Any) -> Iterator[str]:
    """The pointers of the lists that say what a file's quantization config leaves alone."""
    if not isinstance(value, dict):
        return
    for fragment in editable({name: JsonFile(name, b"", value)}):
        _, where = list_of(fragment.value)
        if where is not None:
            yield fragment.pointer + where.pointer


def _inside(place: str, lists: Sequence[str]) -> bool:
    return any(place == one or place.startswith(f"{one}/") for one in lists)


# --- decisions --------------------------------------------------------------------------------------------------------

_Where = tuple[str, Part, str, str]  # engine, part, release, module


def _decision_changes(one: World, other: World, wanted: Wanted) -> Iterator[DecisionChange]:
    """Every decision of some releases that differs, modules and releases that change alike together."""
    old, new = _decided(one, wanted), _decided(other, wanted)
    kinds = {unit.name: unit.stored for unit in (*one.units, *other.units)}
    hit: dict[tuple[str, Part, str, str, str], list[str]] = {}
    for at in dict.fromkeys((*old, *new)):
        answers = old.get(at), new.get(at)
        was, now = (_told(answer) for answer in answers)
        if was != now:
            engine, part, release, module = at
            hit.setdefault((engine, part, was, now, module), []).append(release)
    groups: dict[tuple[str, Part, str, str, tuple[str, ...], str, bool], list[str]] = {}
    for (engine, part, was, now, module), some in hit.items():
        stored = kinds[module]
        right = (now == "plain" and stored.plain) or (now.startswith("quantized") and stored.quantized)
        groups.setdefault((engine, part, was, now, tuple(some), stored.scheme.name, right), []).append(module)
    for (engine, part, was, now, where, scheme, right), modules in groups.items():
        spans = _spans(where, releases.modelled(engine))
        yield DecisionChange(engine, part, spans, was, now, scheme, right, tuple(modules))


def _decided(world: World, wanted: Wanted) -> dict[_Where, Answer]:
    """The decisions of some releases on every module, release by release."""
    found: dict[_Where, Answer] = {}
    for table in tables(world, relevant(judges(world, [ENGINES[name] for name in wanted]), wanted)):
        profile = table.judge.profile
        for row, answer in table.decided:
            for release in profile.releases:
                found[profile.engine, table.judge.part, release, row.unit.name] = answer
    return found


def _told(answer: Answer | None) -> str:
    return "unknown" if answer is None else f"{answer.decision} {answer.scheme}".strip()


def _spans(some: Sequence[str], every: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Releases as runs of neighbours, newest first."""
    return matrix.spans(sorted(some, key=releases.key), every)
