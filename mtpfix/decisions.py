"""The waist: stored modules × declarations × engine profiles -> one table of decisions.

Everything above reads only what is made here, and the world that it is made from. A *judge* is one engine profile on
one part of the model; it holds what that engine asks for each stored module, so that judging another version of a
config (the solver does that) costs only the matching.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from mtpfix import late, releases
from mtpfix.alike import NONE, Alike, layer_and_rest
from mtpfix.engines import openings
from mtpfix.engines.base import Engine, Matcher, MatchQuery, Method, Sparse
from mtpfix.engines.sources import Fragment, declared, read_by, refusal
from mtpfix.families.base import (
    LIST_LAYERS,
    Ask,
    Family,
    Special,
    View,
    ask,
    change_points,
    class_mapper,
    options_at,
    special_for,
    view_for,
)
from mtpfix.families.conditions import holds_all
from mtpfix.formats import list_of
from mtpfix.formats.base import ExclusionList, Format
from mtpfix.frozen import dataclass, field, replace
from mtpfix.idle import MANY, apart
from mtpfix.model import Answer, Cause, JsonFile, Mapper, Packed, Part
from mtpfix.patch import put
from mtpfix.world import Unit, World

Known = Literal["known", "unsupported", "unknown"]
UNQUANTIZED = Method("unquantized")
SPARSE = "sparse"
_NO_CONFIG = Answer("plain", Cause(rule="the checkpoint has no quantization config"))
_READ_HEADERS = frozenset({"gptq", "awq"})
_OTHER_NAMES = "it opens consolidated*.safetensors alone, which hold other tensors than the files that are looked at"
_UNNAMED = Answer("unknown", Cause(rule="the family file names no such module"))
_DIGITS = late.pattern("[0-9]+")


@dataclass(frozen=True, slots=True)
class Profile:
    """A range of releases of one engine that behave alike here."""

    engine: str
    releases: tuple[str, ...]
    latest: bool

    @property
    def first(self) -> str:
        return self.releases[0]


@dataclass(frozen=True, slots=True)
class Row:
    """One question: a unit, what the engine asks for it, and what the model class may decide by itself.

    others  the same units of layers that nothing tells from this one's (see alike.py): what is decided for the unit is
            decided for them, each under its own name
    at      where the layer's number stands in the name that is asked; -1 where the name has none
    """

    unit: Unit
    ask: Ask | None
    specials: tuple[Special, ...] = ()
    others: tuple[Unit, ...] = ()
    at: int = -1

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units that the row stands for."""
        return (self.unit, *self.others)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the units that the row stands for."""
        return tuple(unit.name for unit in self.units)

    @property
    def questions(self) -> int:
        """How many different questions the row stands for."""
        return 1 + len(self.others) if self.at >= 0 else 1

    def each(self) -> Iterator[Row]:
        """The row, and one for each of the others."""
        yield replace(self, others=(), at=-1) if self.others else self
        for unit in self.others:
            yield Row(unit, self.ask and replace(self.ask, runtime=self._asked(unit)), self.specials)

    def _asked(self, unit: Unit) -> str:
        assert self.ask is not None
        name, number = self.ask.runtime, number_of(unit)
        return name if self.at < 0 else name[: self.at] + number + name[self.at + len(number) :]


class AskedNames:
    """The names that some rows ask; those of the layers that a row stands for are not written out."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._whole: set[str] = set()
        self._numbers: dict[tuple[str, str], set[str]] = {}  # what stands before and behind a number -> the numbers
        for row in rows:
            if row.ask is None:
                continue
            name, at = row.ask.runtime, row.at
            self._whole.add(name)
            if at >= 0 and row.others:
                around = name[:at], name[at + len(number_of(row.unit)) :]
                self._numbers.setdefault(around, set()).update(map(number_of, row.others))

    def __contains__(self, name: str) -> bool:
        return name in self._whole or any(
            found[0] in self._numbers.get((name[: found.start()], name[found.end() :]), ())
            for found in _DIGITS.finditer(name)
        )


def number_of(unit: Unit) -> str:
    """The number of a unit's layer."""
    found = layer_and_rest(unit.name)
    return found[0][1] if found else ""


def every(world: World, rows: Iterable[Row]) -> tuple[Row, ...]:
    """A row for each unit that some rows stand for, in the order of the units."""
    found = [one for row in rows for one in row.each()]
    return tuple(sorted(found, key=lambda row: world.place[row.unit.name]))


@dataclass(frozen=True)
class Judge:
    """One engine profile on one part.

    known    `unsupported`: this release knows the family or the format not; `unknown`: mtpfix has no facts
    mappers  in the order in which the engine applies them to the config object this part uses
    """

    engine: Engine
    profile: Profile
    part: Part
    method: Method
    view: View | None
    known: Known
    reason: str
    rows: tuple[Row, ...] = ()
    mappers: tuple[Mapper, ...] = ()
    packed: Packed = field(default_factory=dict)

    @cached_property
    def signature(self) -> tuple[object, ...]:
        """Judges of one signature answer alike: the same rows, asked of the same stage of the same matcher."""
        points = self.engine.change_points(self.method.name)
        stage = sum(releases.at_least(self.profile.first, point) for point in points)
        options = tuple(sorted(self._class_options.items()))
        packed = tuple(sorted(self.packed.items()))
        quant = self.view.quant if self.view else ""
        return self.engine.name, self.part, self.method, stage, id(self.rows), self.mappers, packed, options, quant

    def answers(
        self,
        world: World,
        value: Mapping[str, Any],
        rows: Sequence[Row] | None = None,
        shared: dict[Any, Any] | None = None,
    ) -> tuple[Answer, ...]:
        """The decisions under a quantization config, one for each row.

        rows    others than the judge's own
        shared  what judges have in common that are asked about this very config; under SPARSE the config without
                entries that fall on nothing which any of them looks up
        """
        asked = self.rows if rows is None else rows
        if self.view is None:
            return ()
        if self.view.quant == "none":
            return tuple(_built_plain(row) for row in asked)
        known = {} if shared is None else shared
        matcher = self.engine.matcher(self.query(world, known.get(SPARSE, value), known))
        at = ("answers", id(matcher), id(asked))
        if at not in known:  # releases in which nothing changed for this config have one matcher
            known[at] = matcher, asked, self._asked(world, value, asked, matcher)
        found: tuple[Answer, ...] = known[at][2]
        return found

    def _asked(
        self, world: World, value: Mapping[str, Any], asked: Sequence[Row], matcher: Matcher
    ) -> tuple[Answer, ...]:
        """What the matcher answers, where no class decides by itself."""
        decided: dict[int, Answer | None] = {}

        def special(row: Row) -> Answer | None:
            for fact in row.specials:
                if id(fact) not in decided:
                    holds = holds_all(fact.when, value, world.config, world.layers)
                    decided[id(fact)] = Answer(fact.decision, Cause(rule=fact.why)) if holds else None
                if decided[id(fact)]:
                    return decided[id(fact)]
            return None

        return tuple(special(row) or _listed(matcher, row) for row in asked)

    def every(self, world: World) -> tuple[Row, ...]:
        """A row for each unit that the judge's rows stand for, in the order of the units."""
        at = ("every", id(self.rows))
        if at not in world.kept:
            world.kept[at] = self.rows, every(world, self.rows)  # the rows live as long as what is known by their id
        found: tuple[Row, ...] = world.kept[at][1]
        return found

    def query(self, world: World, value: Mapping[str, Any], shared: dict[Any, Any] | None = None) -> MatchQuery:
        options = {"model_type": world.model_type, "num_hidden_layers": str(world.layers), "part": self.part}
        if "expert_dtype" in world.config:
            options["expert_dtype"] = str(world.config["expert_dtype"])
        return MatchQuery(
            release=self.profile.first,
            method=self.method.name,
            config=value,
            mappers=self.mappers,
            packed=self.packed,
            dtypes=world.dtypes if self.reads_headers or world.model_type == "deepseek_v4" else None,
            options={**options, **self._class_options},
            shared={} if shared is None else shared,
        )

    @property
    def _class_options(self) -> Mapping[str, str]:
        return options_at(self.view, self.profile.first) if self.view else {}

    @property
    def reads_headers(self) -> bool:
        """Whether the method makes a list of what the headers say is packed. DeepSeek-V4 looks up one expert alone."""
        return self.method.name in _READ_HEADERS


def _built_plain(row: Row) -> Answer:
    if row.ask is not None and row.ask.layer == "absent":
        return Answer("absent", Cause(rule=row.ask.why or "the engine builds no such module"))
    return Answer("plain", Cause(rule="the model class builds this part without quantization"))


def _listed(matcher: Matcher, row: Row) -> Answer:
    asked = row.ask
    if asked is None:
        return _UNNAMED
    layer = LIST_LAYERS.get(asked.layer)
    if layer is not None:
        return matcher.decide(asked.runtime, layer, asked.projections)
    if asked.layer == "absent":
        return Answer("absent", Cause(rule=asked.why or "the engine builds no such module"))
    return Answer("plain", Cause(rule=asked.why or "the model class builds it without asking the quantization config"))


def judges(
    world: World, engines: Iterable[Engine], *, fragment: Fragment | None = None, alike: Alike = NONE
) -> tuple[Judge, ...]:
    """Every engine profile on every part. `fragment`: judge this config instead of the one the engine would read.

    `alike`: layers that stand for others; it must hold for every config that the judges are asked about.
    """
    found: list[Judge] = []
    for engine in engines:
        found.extend(_engine_judges(world, engine, fragment, alike))
    return tuple(found)


def _engine_judges(world: World, engine: Engine, fragment: Fragment | None, alike: Alike) -> list[Judge]:
    names = releases.modelled(engine.name)
    chosen = fragment or declared(engine.name, world.files)
    methods = {name: _method(world, engine, name, fragment, chosen) for name in names}
    points = {names[0], *_family_points(world, engine.name), *_file_points(world, engine.name)}
    points.update(new for old, new in pairwise(names) if methods[old] != methods[new])
    for method in {found.name for found in methods.values() if found.name}:
        points.update(engine.change_points(method))
    return [
        _judge(world, engine, Profile(engine.name, group, group[-1] == names[-1]), part, methods[group[0]], alike)
        for group in releases.groups(engine.name, points)
        for part in world.parts
    ]


def _family_points(world: World, engine: str) -> tuple[str, ...]:
    return change_points(world.family, engine) if world.family else ()


def _file_points(world: World, engine: str) -> tuple[str, ...]:
    """The releases in which it changed what a missing file does, where one is missing."""
    index = world.checkpoint.index
    return openings.points(engine) if index is not None and (index.missing_shards or world.nested) else ()


def _method(world: World, engine: Engine, release: str, fragment: Fragment | None, chosen: Fragment | None) -> Method:
    """The method that a release sees. `chosen`: the config in which it looks, `fragment` or what it reads."""
    if chosen is None:
        return UNQUANTIZED
    found = engine.method(chosen.value, release, model_type=world.model_type)
    refused = refusal(engine.name, release, found.name, world.files) if fragment is None else ""
    return Method(found.name, refused) if refused and not found.error else found


def _judge(world: World, engine: Engine, profile: Profile, part: Part, method: Method, alike: Alike) -> Judge:
    if world.family is None:
        return Judge(engine, profile, part, method, None, "unknown", world.family_reason)
    view = view_for(world.family, engine.name, part, profile.first, world.architectures)
    if view is None:
        return Judge(engine, profile, part, method, None, *_no_view(world.family, engine.name, part))
    if not method.name and not method.error:
        return Judge(engine, profile, part, method, None, "unsupported", "this release does not know the format")
    if world.opens_copies(engine.name, profile.first) and world.odd_copies:
        return Judge(engine, profile, part, method, None, "unknown", _OTHER_NAMES)
    rows = _rows(world, alike, view, profile.first, method.name)
    mappers, packed = _config_object(world, view, profile.first, method.name)
    packed = engine.handed_over(method.name, packed, profile.first)
    return Judge(engine, profile, part, method, view, "known", "", rows, mappers, packed)


def _no_view(family: Family, engine: str, part: Part) -> tuple[Known, str]:
    if any(view.engine == engine and view.part == part for view in family.views):
        return "unsupported", f"this release does not know {family.title}"
    if part == "draft" and engine in family.draftless:
        return "unsupported", f"{engine} has no draft class for {family.title}"
    if engine == "transformers" and part == "draft":
        return "unsupported", "transformers builds no draft"
    return "unknown", f"no facts about {family.title} in {engine}"


def _config_object(world: World, view: View, release: str, method: str) -> tuple[tuple[Mapper, ...], Packed]:
    """The mappers and the packed mapping of the config object that a part uses.

    A shared object is the target's: mapped by the target's class, then by the draft's, whose packed mapping replaces
    the target's where it has one (vllm-0.33.0 model_executor/model_loader/utils.py:367-387).
    """
    chain = [view]
    if view.quant == "shared" and world.family is not None:
        target = view_for(world.family, view.engine, "target", release, world.architectures)
        chain = [target, view] if target else chain
    at = ("config object", method, *map(id, chain))
    if at not in world.kept:
        made = (class_mapper(link, world.layers, method) for link in chain)
        mappers = tuple(mapper for mapper in made if mapper is not None)
        world.kept[at] = mappers, next((link.packed for link in reversed(chain) if link.packed is not None), {})
    found: tuple[tuple[Mapper, ...], Packed] = world.kept[at]
    return found


def _rows(world: World, alike: Alike, view: View, release: str, method: str) -> tuple[Row, ...]:
    """The rows of a view. The world keeps them: the same config is judged by many, and many configs by the same."""
    chosen = NONE if method in _READ_HEADERS else alike
    if ("rows", id(chosen)) not in world.kept:
        world.kept["rows", id(chosen)] = _RowCache(world, chosen)
    found: tuple[Row, ...] = world.kept["rows", id(chosen)].rows(view, release, method)
    return found


class _RowCache:
    """Rows by view and release range; rows that ask the same questions are one object, so that judges can be told
    to be alike by identity."""

    def __init__(self, world: World, alike: Alike) -> None:
        self._world, self._alike = world, alike
        self._rows: dict[tuple[int, str, int], tuple[Row, ...]] = {}
        self._same: dict[tuple[object, ...], tuple[Row, ...]] = {}
        self._bound: dict[tuple[int, tuple[str, ...]], Special] = {}

    @cached_property
    def _groups(self) -> tuple[tuple[Unit, ...], ...]:
        """The units, those of layers that are alike together, by the first of each."""
        first = {(path, number): members[0] for (path, _), members in self._alike.members.items() for number in members}
        groups: dict[object, list[Unit]] = {}
        for unit in self._world.units:
            found = None if unit.draft or not first else layer_and_rest(unit.name)
            number = first.get(found[0]) if found else None
            at = unit.name if found is None or number is None else (found[0][0], number, found[1])
            groups.setdefault(at, []).append(unit)
        return tuple(map(tuple, groups.values()))

    def rows(self, view: View, release: str, method: str) -> tuple[Row, ...]:
        stage = sum(releases.at_least(release, point) for point in view.points)
        at = (id(view), method, stage)
        if at not in self._rows:
            rows = tuple(self._build(view, release, method))
            content = tuple((id(row.unit), row.ask, len(row.others), tuple(map(id, row.specials))) for row in rows)
            self._rows[at] = self._same.setdefault(content, rows)
        return self._rows[at]

    def _build(self, view: View, release: str, method: str) -> Iterator[Row]:
        facts = [fact for fact in view.specials if releases.holds(release, fact.span)]
        facts = [fact for fact in facts if not fact.methods or method in fact.methods]

        def row(unit: Unit) -> Row:
            beside, tied = self._world.beside(unit.name), self._world.tied
            asked = ask(view, unit.key, self._world.layers, release, method, beside, tied=tied)
            return Row(unit, asked, tuple(self._specials(facts, unit)))

        for first, *others in self._groups:
            found = row(first)
            if first.draft == (view.part == "draft") or (found.ask is not None and view.part == "draft"):
                one = _standing(found, others, row(others[0])) if others else found
                yield from (one,) if one else (found, *map(row, others))

    def _specials(self, facts: Iterable[Special], unit: Unit) -> Iterator[Special]:
        """The specials that name a unit; those with like conditions are one object, to be decided once."""
        for fact in facts:
            found = special_for(fact, unit.key, self._world.layers)
            if found is not None:
                yield self._bound.setdefault((id(fact), tuple(found.when.values())), found)


def _standing(row: Row, others: Sequence[Unit], second: Row) -> Row | None:
    """The row for a unit that stands for others; None where the engine asks for them in another way.

    `second`: the row of the first of the others, which shows where the number stands in the name.
    """
    if row.specials != second.specials or (row.ask is None) != (second.ask is None):
        return None
    if row.ask is None or second.ask is None or row.ask == second.ask:
        return replace(row, others=tuple(others))
    old, new = number_of(row.unit), number_of(second.unit)
    at = row.ask.runtime.find(f".{old}.") + 1
    moved = row.ask.runtime[:at] + new + row.ask.runtime[at + len(old) :]
    return replace(row, others=tuple(others), at=at) if at and replace(row.ask, runtime=moved) == second.ask else None


Decided = tuple[tuple[Row, Answer], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """What one judge decides about every module it asks for, and the config it read."""

    judge: Judge
    fragment: Fragment | None
    decided: Decided

    @property
    def size(self) -> int:
        """How many modules are decided."""
        return sum(1 + len(row.others) for row, _ in self.decided)

    def every(self, world: World, rows: Iterable[Row] | None = None) -> Decided:
        """The decisions with a row for each unit, and its own cause. `rows`: of these rows alone."""
        if rows is None and not any(row.others for row, _ in self.decided):
            return self.decided
        asked = every(world, (row for row, _ in self.decided) if rows is None else rows)
        return _decided(world, self.judge, self.fragment, asked)


def tables(world: World, all_judges: Sequence[Judge], files: Mapping[str, JsonFile] | None = None) -> tuple[Table, ...]:
    """The decisions of every judge under the checkpoint's files, or under another version of them."""
    current = world.files if files is None else files
    known: dict[tuple[object, ...], Decided] = {}
    shared: dict[object, dict[Any, Any]] = {}
    chosen = {name: declared(name, current) for name in dict.fromkeys(judge.engine.name for judge in all_judges)}
    asked = {id(judge.rows): judge.rows for judge in all_judges}.values()
    out = []
    for judge in all_judges:
        fragment = read_by(judge.engine.name, judge.profile.first, current, chosen[judge.engine.name])
        place = fragment and (fragment.file, fragment.pointer)
        at = (judge.signature, place)
        if at not in known:
            if place not in shared:
                shared[place] = shared_under(world, fragment.value, asked) if fragment else {}
            known[at] = _decided(world, judge, fragment, judge.rows, shared[place])
            if fragment:  # which lives as long as its id counts
                world.kept["told", judge.signature, id(fragment.value)] = fragment.value, known[at]
        out.append(Table(judge, fragment, known[at]))
    return tuple(out)


def recalled(world: World, signature: tuple[object, ...], value: Mapping[str, Any]) -> Decided | None:
    """What judges of a signature decide under a config, where tables were made of it."""
    found = world.kept.get(("told", signature, id(value)))
    return found and found[1]


def tables_under(world: World, all_judges: Sequence[Judge], fragment: Fragment) -> tuple[Table, ...]:
    """The decisions of every judge under one quantization config, whatever file it would read."""
    shared: dict[Any, Any] = {SPARSE: sparse(world, fragment.value, [judge.rows for judge in all_judges])}
    return tuple(Table(judge, fragment, _decided(world, judge, fragment, judge.rows, shared)) for judge in all_judges)


def list_in(world: World, value: Mapping[str, Any]) -> tuple[Format | None, ExclusionList | None]:
    """The format of a config and its exclusion list, looked for once."""
    at = ("list", id(value))
    if at not in world.kept:
        world.kept[at] = value, list_of(value)  # the config lives as long as its id counts
    found: tuple[Format | None, ExclusionList | None] = world.kept[at][1]
    return found


def shared_under(world: World, value: Mapping[str, Any], asked: Iterable[Sequence[Row]]) -> dict[Any, Any]:
    """What judges have in common that are asked about a config; the same for all rows to which the same entries mean
    nothing. It is kept for the configs of files: they are few, and asked about again and again."""
    gone = _idle(world, value, asked)
    at = ("shared", id(value), gone)
    if at not in world.kept:
        world.kept[at] = value, {SPARSE: _without(world, value, gone)}  # the config lives as long as its id counts
    found: dict[Any, Any] = world.kept[at][1]
    return found


def sparse(world: World, value: Mapping[str, Any], asked: Iterable[Sequence[Row]]) -> Mapping[str, Any]:
    """A config without entries of its exclusion list that fall on nothing which some rows ask for."""
    return _without(world, value, _idle(world, value, asked))


def _idle(world: World, value: Mapping[str, Any], asked: Iterable[Sequence[Row]]) -> frozenset[int]:
    _, where = list_in(world, value)
    return frozenset() if where is None else idle_in(world, value, where, names_asked(asked))


def _without(world: World, value: Mapping[str, Any], gone: frozenset[int]) -> Mapping[str, Any]:
    _, where = list_in(world, value)
    if where is None or not gone:
        return value
    held = listed(value, where)
    kept = [at for at in range(len(where.entries)) if at not in gone]
    path = where.pointer.split("/")[1:]
    entries = where.entries
    left = {entries[at]: held[entries[at]] for at in kept} if where.keyed else Sparse([held[at] for at in kept], kept)
    found: Mapping[str, Any] = put(value, path, left)
    return found


def idle_in(world: World, value: Mapping[str, Any], where: ExclusionList, names: frozenset[str]) -> frozenset[int]:
    """The indices of entries of a list that make no difference to whoever looks up some names.

    None where a list holds what is no text, nor of a file that is the list itself: ModelSlim's names every tensor.
    """
    if not where.present or where.broken or not where.pointer or len(where.entries) < MANY:
        return frozenset()
    if world.numbers is None or not world.numbers.hold(names):
        return frozenset()
    if not where.keyed:
        return apart(world.doubles(where.entries), names)
    held = listed(value, where)
    at = ("doubles", id(held))
    if at not in world.kept:  # the table lives as long as what is known by its id
        world.kept[at] = held, world.doubles(where.entries, [held[entry] for entry in where.entries])
    return apart(world.kept[at][1], names)


def listed(value: Mapping[str, Any], where: ExclusionList) -> Any:
    """What stands in the list's place, None where nothing does."""
    found: Any = value
    for step in where.pointer.split("/")[1:]:
        found = found.get(step)
    return found


def names_asked(asked: Iterable[Sequence[Row]]) -> frozenset[str]:
    """The names that some rows ask for."""
    return frozenset(row.ask.runtime for rows in asked for row in rows if row.ask is not None)


def _decided(
    world: World,
    judge: Judge,
    fragment: Fragment | None,
    rows: Sequence[Row],
    shared: dict[Any, Any] | None = None,
) -> Decided:
    if judge.view is None:
        return ()
    if judge.method.error:
        refused = Answer("error", Cause(rule=judge.method.error), error=judge.method.error)
        return tuple((row, refused) for row in rows)
    if fragment is None:
        return tuple((row, _NO_CONFIG) for row in rows)
    if shared is None:
        shared = shared_under(world, fragment.value, [rows])
    return tuple(zip(rows, judge.answers(world, fragment.value, rows, shared), strict=True))
