"""Findings' fixes put together: one plan, its bytes, its certificate (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mtpfix.alike import NONE, Alike
from mtpfix.checkpoint.jsonfiles import Together, check_size
from mtpfix.checkpoint.limits import check_lists
from mtpfix.decisions import Judge, Table, judges, list_in, listed
from mtpfix.engines.base import Engine
from mtpfix.engines.sources import (
    CONFIG,
    DESCRIPTION,
    SIDECAR,
    Fragment,
    config_fragments,
    description_fragment,
    fragment_for,
    sidecar_fragment,
)
from mtpfix.errors import UnreadableError
from mtpfix.formats.base import ExclusionList, Format
from mtpfix.frozen import dataclass, replace
from mtpfix.model import Certificate, Edit, JsonFile, Plan
from mtpfix.patch import apply_value, ops, pointer, put, tokens
from mtpfix.releases import key
from mtpfix.rules.entries import malformed
from mtpfix.solving.seats import Bench
from mtpfix.solving.solution import Solution, is_broken
from mtpfix.solving.solver import solved
from mtpfix.storage.layer_types import KEY as LAYER_TYPES
from mtpfix.world import World


def solutions(
    world: World, engines: Sequence[Engine], wanted: Mapping[str, frozenset[str]], alike: Alike = NONE
) -> tuple[Solution, ...]:
    """What becomes of each exclusion list: config.json's, and the sidecar's as if engines took it for their own.

    `wanted`: the releases of each engine that the plan must satisfy. `alike`: layers of which one stands for others, as
    long as no list that is tried out tells them apart. Two files that hold the same list are solved as one; config.json
    then by itself, where the engines that read the sidecar cannot take what its own would need.
    """
    jury = _Jury(world, engines, wanted, alike)
    pair = editable(world.files)
    if not _alike(world, pair):
        found = (jury.solve(fragment, jury.benches(fragment)) for fragment in pair)
        return tuple(item for item in found if item is not None)
    solved = jury.solve(pair[0], [*jury.readers(pair[0]), *jury.native(_in_order(world, pair))])
    if solved is None:
        return ()
    own = jury.solve(pair[0], jury.readers(pair[0]), solved) if solved.vetoed else solved
    return own or solved, _moved(world, solved, pair[1])


def _alike(world: World, pair: Sequence[Fragment]) -> bool:
    """Whether two files hold the same list in the same format: then one solution serves both."""
    lists = _lists_of(world, pair)
    return lists is not None and (_is_equal(*lists) or _is_reordered(*lists))


def _is_equal(one: ExclusionList, other: ExclusionList) -> bool:
    return all(getattr(one, part) == getattr(other, part) for part in ("entries", "places", "present", "broken"))


def _is_reordered(one: ExclusionList, other: ExclusionList) -> bool:
    """Whether two lists hold the same entries, in another order or more than once, and no engine can tell: of rules the
    first that matches wins, and what is no text or no expression stops an engine on its way."""
    if one.keyed or one.broken or other.broken or not (one.present and other.present):
        return False
    return set(one.entries) == set(other.entries) and not any(map(_stops, one.entries))


def _stops(entry: str) -> bool:
    """Whether an engine may stop on an entry: on an expression, or on a glob that it makes one of."""
    return is_broken(entry if entry.startswith("re:") else entry.replace("*", ".*"))


def _in_order(world: World, pair: Sequence[Fragment]) -> Fragment:
    """The second of two files with the same list, with it in the order of the first."""
    lists = _lists_of(world, pair)
    assert lists is not None
    if _is_equal(*lists):
        return pair[1]
    held = listed(pair[0].value, lists[0])
    return replace(pair[1], value=put(pair[1].value, tokens(lists[1].pointer), held))


def _list_of(world: World, fragment: Fragment) -> tuple[Format, ExclusionList] | None:
    fmt, where = list_in(world, fragment.value)
    return (fmt, where) if fmt and where else None


def _lists_of(world: World, pair: Sequence[Fragment]) -> tuple[ExclusionList, ExclusionList] | None:
    """The lists of two files, where there are two and each has a list in the same format."""
    if len(pair) < 2:
        return None
    one, other = (_list_of(world, fragment) for fragment in pair)
    return (one[1], other[1]) if one and other and one[0] is other[0] else None


def _moved(world: World, item: Solution, fragment: Fragment) -> Solution:
    """The same change for the list of another file, which may hold the entries in another order."""
    found = _list_of(world, fragment)
    if found is None:
        return item
    where, removed = found[1], item.removed
    if not _is_equal(item.where, where):
        kept = {text for place, text in zip(item.where.places, item.where.entries, strict=True) if place not in removed}
        removed = tuple(place for place, text in zip(where.places, where.entries, strict=True) if text not in kept)
    return replace(item, fragment=fragment, where=where, removed=removed)


@dataclass(frozen=True, slots=True)
class _Jury:
    """The judges that a plan must satisfy, for each file they come to read."""

    world: World
    engines: Sequence[Engine]
    wanted: Mapping[str, frozenset[str]]
    alike: Alike

    def solve(self, fragment: Fragment, benches: Sequence[Bench], start: Solution | None = None) -> Solution | None:
        """The change of one list, on top of `start`; None for a config without a list that mtpfix knows."""
        found = _list_of(self.world, fragment)
        if found is None:
            return None
        fmt, where = found

        def is_malformed(entry: str) -> bool:
            return bool(malformed(fmt, entry))

        return solved(self.world, fmt, fragment, where, benches, self.alike, is_malformed, start)

    def benches(self, fragment: Fragment) -> list[Bench]:
        """config.json is judged by its readers; the sidecar too, with its list in config.json's place."""
        stand_in = in_config(self.world, self.world.files) if fragment.file == SIDECAR else None
        if stand_in is None:
            return self.readers(fragment)
        return [*self.native(fragment), self._bench(self._named(native=False), *stand_in)]

    def readers(self, fragment: Fragment) -> list[Bench]:
        """The engines that can come to read a file, on the file as it is."""
        found = _list_of(self.world, fragment)
        some = [engine for engine in self.engines if _reads(engine, fragment, self.world.files)]
        return [self._bench(some, fragment, found[1])] if found else []

    def native(self, fragment: Fragment) -> list[Bench]:
        """The engines that read the sidecar, on the sidecar: TensorRT-LLM, others where config.json says too little."""
        found = _list_of(self.world, fragment)
        return [self._bench(self._named(native=True), fragment, found[1])] if found else []

    def _named(self, *, native: bool) -> list[Engine]:
        return [engine for engine in self.engines if reads_sidecar(engine, self.world.files) is native]

    def _bench(self, some: Sequence[Engine], fragment: Fragment, where: ExclusionList) -> Bench:
        found = relevant(judges(self.world, some, fragment=fragment, alike=self.alike), self.wanted)
        return Bench(usable(self.world, found), fragment.value, where)


def in_config(world: World, files: Mapping[str, JsonFile]) -> tuple[Fragment, ExclusionList] | None:
    """config.json's quantization config with the sidecar's list in place of its own; None where there are no two.

    So the sidecar is judged by what its entries mean, even where an engine would not read that file as it is.
    """
    pair = editable(files)
    lists = _lists_of(world, pair)
    if lists is None:
        return None
    own, beside = lists
    held = listed(pair[1].value, beside)
    value = put(pair[0].value, tokens(own.pointer), ({} if own.keyed else []) if held is None else held)
    return Fragment(pair[0].file, pair[0].pointer, value), replace(beside, pointer=own.pointer)


def editable(files: Mapping[str, JsonFile]) -> tuple[Fragment, ...]:
    """The quantization configs that a plan may change: the one that counts in config.json, and the sidecar; ModelSlim's
    description alone where there is one."""
    described = description_fragment(files)
    if described:
        return (described,)
    inside, beside = config_fragments(files)[:1], sidecar_fragment(files)
    return (*inside, beside) if beside else inside


def relevant(found: Iterable[Judge], wanted: Mapping[str, frozenset[str]]) -> tuple[Judge, ...]:
    """The judges of the engine releases that a plan must satisfy, their ranges cut to these.

    Of them the newest is `latest`.
    """
    cut = (_cut(judge, wanted.get(judge.engine.name, frozenset())) for judge in found)
    return tuple(judge for judge in cut if judge.profile.releases)


def _cut(judge: Judge, some: frozenset[str]) -> Judge:
    """A judge of some of its releases; the judge itself where nothing is cut."""
    profile = judge.profile
    kept = tuple(name for name in profile.releases if name in some)
    narrow = replace(profile, releases=kept, latest=bool(kept) and kept[-1] == max(some, key=key))
    return judge if narrow == profile else replace(judge, profile=narrow)


def usable(world: World, found: Iterable[Judge]) -> tuple[Judge, ...]:
    """The judges whose part is there: of a draft that is declared and not stored no list can say anything."""
    return tuple(judge for judge in found if judge.part != "draft" or not world.draft_is_absent)


def reads_sidecar(engine: Engine, files: Mapping[str, JsonFile]) -> bool:
    """Whether an engine's newest release takes its lists from the sidecar."""
    found = fragment_for(engine.name, engine.releases[-1], files)
    return found is not None and found.file == SIDECAR


def _reads(engine: Engine, fragment: Fragment, files: Mapping[str, JsonFile]) -> bool:
    """Whether an engine can come to read a config: TensorRT-LLM prefers the sidecar, transformers knows none."""
    if engine.name == "tensorrt-llm":
        return (fragment.file == SIDECAR) is reads_sidecar(engine, files)
    if fragment.file == DESCRIPTION:
        return engine.name in ("sglang", "vllm-ascend")
    return engine.name != "transformers" or fragment.file != SIDECAR


def changed_files(world: World, found: Iterable[Solution]) -> dict[str, JsonFile]:
    """The checkpoint's JSON files after the plan (values; bytes where nothing changes)."""
    files = dict(world.files)
    for item in found:
        if not item.empty:
            old = files[item.fragment.file]
            files[old.name] = JsonFile(old.name, old.raw, _replaced(old.value, item.fragment.pointer, item.value()))
    return files


def _replaced(value: Any, place: str, new: Mapping[str, Any]) -> Any:
    """A JSON value with an object in it replaced by another."""
    if not place:
        return new
    first, *rest = tokens(place)
    return {**value, first: _replaced(value[first], pointer(*rest), new)}


def edits(found: Iterable[Solution]) -> tuple[Edit, ...]:
    """The RFC 6902 operations of some solutions, in the order in which they apply."""
    return tuple(edit for item in found for edit in _edits(item))


def _edits(item: Solution) -> Iterator[Edit]:
    where, file = item.where, item.fragment.file
    place = item.fragment.pointer + where.pointer
    entries = [added.entry for added in item.added]
    if not where.present:
        if not item.empty:
            yield _new_list(item, place, entries)
        return
    if where.keyed:
        names = dict(zip(where.places, where.entries, strict=True))
        yield from (Edit(file, "remove", place + pointer(names[at])) for at in item.removed)
        for entry in reversed(entries):
            yield from _new_key(item, place, entry)
        return
    yield from (Edit(file, "remove", f"{place}/{at}") for at in sorted(item.removed, reverse=True))
    yield from (Edit(file, "add", f"{place}/-", entry) for entry in entries)


def _new_key(item: Solution, place: str, entry: str) -> Iterator[Edit]:
    """A new member before its siblings: of rules the first that matches wins, so that one that exists moves there.

    Where names are no rules but have a word each, the one that exists gets another word.
    """
    file, value, held = item.fragment.file, item.where.value, listed(item.fragment.value, item.where)
    exists = isinstance(held, Mapping) and entry in held
    if exists and isinstance(value, str):
        yield Edit(file, "replace", place + pointer(entry), value)
        return
    if exists:
        yield Edit(file, "remove", place + pointer(entry))
    yield Edit(file, "add", place + pointer(entry), value, first=True)


def _new_list(item: Solution, place: str, entries: list[str]) -> Edit:
    kept = [entry for at, entry in zip(item.where.places, item.where.entries, strict=True) if at not in item.removed]
    value = dict.fromkeys([*entries, *kept], item.where.value) if item.where.keyed else [*kept, *entries]
    *path, key = tokens(item.where.pointer)
    inner: Any = item.fragment.value
    for step in path:
        inner = inner[step]
    return Edit(item.fragment.file, "replace" if key in inner else "add", place, value)


def count_edits(world: World) -> tuple[Edit, ...]:
    """The edits that set draft counts and layer types to what is stored; none where they agree.

    They change what engines build, so that they are no safe fixes.
    """
    counts = _draft_counts(world)
    done = {edit.pointer for edit in counts}
    odd = [place for place in world.odd_counts if place not in done]
    return (*counts, *(Edit(CONFIG, "replace", place, world.stored_layers) for place in odd), *_type_edits(world))


def _type_edits(world: World) -> Iterator[Edit]:
    """The operations that make `layer_types` say what each layer stores."""
    found = world.layer_types
    if found is None:
        return
    place, have, want = world.pointers((LAYER_TYPES,))[-1], len(found.declared), len(found.stored)
    yield from (Edit(CONFIG, "replace", f"{place}/{number}", found.stored[number]) for number in found.wrong)
    yield from (Edit(CONFIG, "remove", f"{place}/{number}") for number in range(have - 1, want - 1, -1))
    yield from (Edit(CONFIG, "add", f"{place}/-", kind) for kind in found.stored[have:])


def _draft_counts(world: World) -> tuple[Edit, ...]:
    if world.declared is None or world.checkpoint_lists_missing_draft:
        return ()
    if world.declared == world.stored_layers or not (world.stored_layers or world.draft_is_absent):
        return ()
    return tuple(Edit(CONFIG, "replace", place, world.stored_layers) for place in world.count_pointers)


def build(
    world: World, found: Sequence[Solution], before: Sequence[Table], after: Sequence[Table], *, unsafe: bool = False
) -> Plan:
    """The plan of some solutions: edits, exact bytes, certificate. An empty plan where nothing changes."""
    from mtpfix.splice import splice  # its expressions take 4 ms to compile, and a clean checkpoint needs none

    counts = count_edits(world)
    operations = (*edits(found), *(counts if unsafe else ()))
    names = list(dict.fromkeys(edit.file for edit in operations))
    old = {name: world.files[name].raw for name in names}
    new = {name: splice(old[name], [edit for edit in operations if edit.file == name]) for name in names}
    _verify(world, operations, new)
    held_back = () if unsafe else held_counts(counts)
    return Plan(operations, old, new, certificate(world, found, before, after), held_back)


def held_counts(counts: Sequence[Edit]) -> tuple[str, ...]:
    """What the edits of counts would do, in words; the layer types are one fix."""
    types = [edit for edit in counts if f"/{LAYER_TYPES}/" in edit.pointer]
    words = [f"set {edit.pointer} to {edit.value}, as many as are stored" for edit in counts if edit not in types]
    place = types[0].pointer.rpartition("/")[0] if types else ""
    return (*words, *([f"make {place} say what each layer stores"] if types else []))


def _verify(world: World, operations: Sequence[Edit], new: Mapping[str, bytes]) -> None:
    """The bytes must say what the patch says; anything else is a fault of mtpfix and must not be written. Raises
    UnreadableError for more than mtpfix reads: what it could not check any more is not written either."""
    files: dict[str, JsonFile] = {}
    for name, patch in ops(operations).items():
        files[name] = JsonFile(name, new[name], json.loads(new[name].decode("utf-8-sig")))
        if files[name].value != apply_value(world.files[name].value, patch):
            raise AssertionError(f"{name}: the edited text does not say what was planned")
    if files:
        _check_read(world, files)


def _check_read(world: World, new: Mapping[str, JsonFile]) -> None:
    index, together = world.checkpoint.index, Together()
    try:
        for name, file in {**world.files, **new}.items():
            check_size(name, together.add(name, file.raw))
        check_lists(new, len(world.checkpoint.modules) + (len(index.ghosts) if index else 0))
    except UnreadableError as error:
        raise UnreadableError(f"{error}, once it is repaired", subject=error.subject, hint=error.hint) from None


def certificate(
    world: World, found: Sequence[Solution], before: Sequence[Table], after: Sequence[Table]
) -> Certificate:
    """What was checked, in numbers that a reviewer can repeat."""
    checked: dict[str, int] = {}
    for table in before:
        for release in table.judge.profile.releases if table.decided else ():
            name = f"{table.judge.engine.name} {release}"
            checked[name] = checked.get(name, 0) + table.size
    harmed = sum(
        len(row.units)
        for one, other in zip(before, after, strict=True)
        for (row, old), (_, new) in zip(one.decided, other.decided, strict=True)
        if row.unit.stored.quantized and old.decision == "quantized" and new.decision == "plain"
    )
    return Certificate(
        modules=sum(max(1, len(unit.stored.experts)) for unit in world.units),
        quantized_modules=sum(max(1, len(unit.stored.experts)) for unit in world.units if unit.stored.quantized),
        decisions=checked,
        newly_plain_quantized=harmed,
        entries_added=sum(len(item.added) for item in found),
        entries_removed=sum(len(item.removed) for item in found),
    )
