"""Findings' fixes put together: one plan, its bytes, its certificate (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mtpfix.decisions import Judge, Table, World, judges
from mtpfix.engines.base import Engine
from mtpfix.engines.sources import SIDECAR, Fragment, config_fragments, sidecar_fragment
from mtpfix.formats import format_of
from mtpfix.formats.base import ExclusionList
from mtpfix.model import Certificate, Edit, JsonFile, Plan
from mtpfix.patch import pointer, tokens
from mtpfix.rules.entries import malformed
from mtpfix.solve import Solution, Solver
from mtpfix.splice import splice


def solutions(world: World, engines: Sequence[Engine], wanted: Mapping[str, frozenset[str]]) -> tuple[Solution, ...]:
    """What becomes of each exclusion list: config.json's, and the sidecar's, each judged as if it stood alone.

    `wanted`: the releases of each engine that the plan must satisfy.
    """
    found = []
    for fragment in editable(world.files):
        some = [engine for engine in engines if _reads(engine, fragment, world.files)]
        found.append(_solution(world, fragment, relevant(judges(world, some, fragment=fragment), wanted)))
    return tuple(item for item in found if item is not None)


def editable(files: Mapping[str, JsonFile]) -> tuple[Fragment, ...]:
    """The quantization configs that a plan may change: the one that counts in config.json, and the sidecar."""
    inside, beside = config_fragments(files)[:1], sidecar_fragment(files)
    return (*inside, beside) if beside else inside


def relevant(found: Iterable[Judge], wanted: Mapping[str, frozenset[str]]) -> tuple[Judge, ...]:
    """The judges of the engine releases that a plan must satisfy."""
    return tuple(
        judge for judge in found if not wanted.get(judge.engine.name, frozenset()).isdisjoint(judge.profile.releases)
    )


def _reads(engine: Engine, fragment: Fragment, files: Mapping[str, JsonFile]) -> bool:
    """Whether an engine can come to read a config: TensorRT-LLM prefers the sidecar, transformers knows none."""
    if engine.name == "tensorrt-llm":
        return fragment.file == SIDECAR or sidecar_fragment(files) is None
    return engine.name != "transformers" or fragment.file != SIDECAR


def _solution(world: World, fragment: Fragment, some: Sequence[Judge]) -> Solution | None:
    fmt = format_of(fragment.value)
    where = fmt.exclusions(fragment.value) if fmt else None
    if fmt is None or where is None:
        return None
    return Solver(world, fmt, fragment, some).solve(where, lambda entry: bool(malformed(fmt, entry)))


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
        if entries:
            yield _new_list(item, place, entries)
        return
    if where.keyed:
        names = dict(zip(where.places, where.entries, strict=True))
        yield from (Edit(file, "remove", place + pointer(names[at])) for at in item.removed)
        yield from (Edit(file, "add", place + pointer(entry), {}, first=True) for entry in reversed(entries))
        return
    yield from (Edit(file, "remove", f"{place}/{at}") for at in sorted(item.removed, reverse=True))
    yield from (Edit(file, "add", f"{place}/-", entry) for entry in entries)


def _new_list(item: Solution, place: str, entries: list[str]) -> Edit:
    value = {entry: {} for entry in entries} if item.where.keyed else entries
    *path, key = tokens(item.where.pointer)
    inner: Any = item.fragment.value
    for step in path:
        inner = inner[step]
    return Edit(item.fragment.file, "replace" if key in inner else "add", place, value)


def build(
    world: World, found: Sequence[Solution], before: Sequence[Table], after: Sequence[Table], held_back: tuple[str, ...]
) -> Plan:
    """The plan of some solutions: edits, exact bytes, certificate. An empty plan where nothing changes."""
    operations = edits(found)
    names = list(dict.fromkeys(edit.file for edit in operations))
    old = {name: world.files[name].raw for name in names}
    new = {name: splice(old[name], [edit for edit in operations if edit.file == name]) for name in names}
    _verify(world, found, new)
    return Plan(operations, old, new, certificate(world, found, before, after), held_back)


def _verify(world: World, found: Sequence[Solution], new: Mapping[str, bytes]) -> None:
    """The bytes must say what was judged; anything else is a fault of mtpfix and must not be written."""
    wanted = changed_files(world, found)
    for name, raw in new.items():
        if json.loads(raw.decode("utf-8-sig")) != wanted[name].value:
            raise AssertionError(f"{name}: the edited text does not say what was planned")


def certificate(
    world: World, found: Sequence[Solution], before: Sequence[Table], after: Sequence[Table]
) -> Certificate:
    """What was checked, in numbers that a reviewer can repeat."""
    checked: dict[str, int] = {}
    for table in before:
        for release in table.judge.profile.releases if table.decided else ():
            name = f"{table.judge.engine.name} {release}"
            checked[name] = checked.get(name, 0) + len(table.decided)
    harmed = sum(
        row.unit.stored.quantized and old.decision == "quantized" and new.decision == "plain"
        for one, other in zip(before, after, strict=True)
        for (row, old), (_, new) in zip(one.decided, other.decided, strict=True)
    )
    return Certificate(
        modules=sum(max(1, len(unit.stored.experts)) for unit in world.units),
        quantized_modules=sum(max(1, len(unit.stored.experts)) for unit in world.units if unit.stored.quantized),
        decisions=checked,
        newly_plain_quantized=harmed,
        entries_added=sum(len(item.added) for item in found),
        entries_removed=sum(len(item.removed) for item in found),
    )


def same_list(one: ExclusionList | None, other: ExclusionList | None) -> bool:
    """Whether two lists hold the same entries."""
    return one is not None and other is not None and one.entries == other.entries
