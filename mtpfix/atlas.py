"""The map of a checkpoint: every module in its place, and what each engine decides about it (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mtpfix.decisions import Row, Table
from mtpfix.frozen import replace
from mtpfix.model import Answer, Atlas, EngineRow, MapModule, MapView, Ruling, Standing
from mtpfix.verdicts import Mismatch
from mtpfix.world import Unit, World, layer_of

Tabled = tuple[Table, EngineRow, Sequence[Mismatch]]


def atlas_of(world: World, before: Iterable[Tabled], after: Iterable[Tabled]) -> Atlas:
    """The map. `before` and `after` hold, of the same judges in the same order, table, verdict and mismatches."""
    places = {id(unit): place for place, unit in enumerate(world.units)}
    views: list[MapView] = []
    for old, new in zip(_profiles(before), _profiles(after), strict=True):
        profile = old[0][0].judge.profile
        view = MapView(profile.engine, profile.releases, profile.latest, _standing(old, places), _standing(new, places))
        if views and _alike(views[-1], view):
            views[-1] = replace(views[-1], releases=views[-1].releases + view.releases, latest=view.latest)
        else:
            views.append(view)
    return Atlas(tuple(map(_module, world.units)), tuple(views))


def _profiles(tabled: Iterable[Tabled]) -> list[list[Tabled]]:
    """The tables of each profile: the parts of one range of releases together."""
    out: dict[tuple[str, tuple[str, ...]], list[Tabled]] = {}
    for item in tabled:
        profile = item[0].judge.profile
        out.setdefault((profile.engine, profile.releases), []).append(item)
    return list(out.values())


def _alike(one: MapView, other: MapView) -> bool:
    return one.engine == other.engine and all(
        old.rulings == new.rulings and [*map(_said, old.rows)] == [*map(_said, new.rows)]
        for old, new in ((one.before, other.before), (one.after, other.after))
    )


def _said(row: EngineRow) -> tuple[str, ...]:
    return row.part, row.verdict, row.reason, row.error


def _standing(tabled: Sequence[Tabled], places: Mapping[int, int]) -> Standing:
    found: list[tuple[Ruling, ...]] = [()] * len(places)
    for table, _, wrong in tabled:
        faults = {id(item.row): item for item in wrong}
        for row, answer in table.decided:
            found[places[id(row.unit)]] += (_ruling(table, row, answer, faults.get(id(row))),)
    return Standing(tuple(row for _, row, _ in tabled), tuple(found))


def _ruling(table: Table, row: Row, answer: Answer, wrong: Mismatch | None) -> Ruling:
    cause, fragment = answer.cause, table.fragment
    listed = bool(cause.pointer) and fragment is not None
    return Ruling(
        part=table.judge.part,
        runtime=row.ask.runtime if row.ask else "",
        decision=answer.decision,
        scheme=answer.scheme,
        rule="" if listed else cause.rule or "no entry of the config decides",
        file=fragment.file if listed and fragment else "",
        pointer=fragment.pointer + cause.pointer if listed and fragment else "",
        entry=cause.entry if listed else "",
        verdict=wrong.verdict if wrong else "",
        why=wrong.why if wrong else "",
        error=wrong.error if wrong else "",
    )


def _module(unit: Unit) -> MapModule:
    stored = unit.stored
    layer = layer_of(unit.name) or ""
    kind = unit.name.removeprefix(f"{layer}.") if layer and layer != unit.name else ""
    if stored.experts:
        head, _, rest = kind.partition(".experts.")
        kind = f"{head}.experts.*.{rest.partition('.')[2]}"
    return MapModule(
        name=unit.name,
        layer=layer if kind else "",
        kind=kind or unit.name,
        part="draft" if unit.draft else "target",
        scheme=stored.scheme.name,
        experts=stored.experts,
        tensors=stored.raw.cells,
        listed=stored.raw.listed,
    )
