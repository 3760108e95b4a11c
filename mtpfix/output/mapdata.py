"""The map of a checkpoint as data for a page: what repeats is written once.

A cell of the map is a kind of module in a layer. Cells that are stored alike and that every engine decides alike, but
for the layer's number, are of one class; 60 layers of 256 experts come to some dozen classes.

    views     engine, releases (first, last, how many), latest; verdict, reason, error of each part before and after
    schemes   name, kind and how many modules
    grids     {cols: [kind], sections: [[prefix, part, [[layer, [class or -1]]]]]}
    loose     [name, part, class] of what is in no layer
    classes   [member]; member: experts, count, scheme, tensors, listed, vectors before and after
    vectors   for each view a set of rulings
    sets      rulings
    rulings   part, runtime name, decision, scheme, rule, place, entry, verdict, why, error
    places    file and pointer of a list, entry -> index in it
    tensors   [suffix, dtype, shape]

In texts, LAYER stands for the layer's number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from mtpfix.model import Atlas, EngineRow, MapModule, MapView, Ruling, Standing
from mtpfix.names import brief
from mtpfix.output.base import Page
from mtpfix.output.collapse import numbers
from mtpfix.output.text import clean

LAYER = "\x01"
MOST_CELLS = 40_000  # 200 layers of 30 kinds have 6,000
PLAIN = frozenset({"bf16", "f16", "f32", "f64"})

_PAGE = Page()
_LONGEST_LIST = 80
_LONGEST_TEXT = 600
_MOST_PLACES = 3000
# How leaves stand side by side: as the data flows.
_LEAVES = ("wq", "q", "wk", "k", "v", "in", "gate_up", "gate", "up", "down", "wo", "o")

Grid = dict[str, Any]


class _Pool:
    """Values, each once, and their numbers."""

    def __init__(self) -> None:
        self.known: dict[Hashable, int] = {}

    def __call__(self, value: Hashable) -> int:
        return self.known.setdefault(value, len(self.known))

    def listed(self) -> list[Any]:
        return list(self.known)


@lru_cache(maxsize=100_000)
def shown(text: str) -> str:
    """A foreign string as the page shows it."""
    return brief(clean(text, _PAGE), _LONGEST_TEXT)


def map_data(atlas: Atlas) -> dict[str, Any] | None:
    """All that a page needs to draw the map and to say what each engine decides; None where nobody could draw it."""
    cells = _cells(atlas.modules)
    grids = [grid for grid in _grids(cells) if grid["cols"]]
    if len(cells) + sum(map(_area, grids)) > MOST_CELLS:
        return None
    writer = _Writer(atlas)
    return {
        "views": [_view(view) for view in atlas.views],
        "changed": any(view.before is not view.after and view.before != view.after for view in atlas.views),
        "grids": [_drawn(grid, cells, writer.number) for grid in grids],
        "loose": [
            [shown(kind), atlas.modules[at[0]].part, writer.number("", at)]
            for (layer, _, kind), at in cells.items()
            if not layer
        ],
        "classes": writer.classes.listed(),
        "vectors": writer.vectors.listed(),
        "sets": writer.sets.listed(),
        "rulings": writer.rulings.listed(),
        "places": writer.places(),
        "tensors": writer.tensors.listed(),
        "schemes": _schemes(atlas.modules, writer.schemes.listed()),
    }


def _area(grid: Grid) -> int:
    return len(grid["cols"]) * sum(len(layers) for _, _, layers in grid["sections"])


def _schemes(modules: Iterable[MapModule], names: Iterable[str]) -> list[list[Any]]:
    counts = Counter[str]()
    for module in modules:
        counts[module.scheme] += max(1, len(module.experts))
    return [[name, "plain" if name in PLAIN else "odd" if name == "odd" else "packed", counts[name]] for name in names]


class _Writer:
    """Classes of cells, and the pools that they refer to."""

    def __init__(self, atlas: Atlas) -> None:
        self.atlas = atlas
        self.classes, self.vectors, self.sets, self.rulings, self.tensors = (_Pool() for _ in range(5))
        self.schemes = _Pool()
        for name, _ in Counter(module.scheme for module in atlas.modules).most_common():
            self.schemes(name)
        self._lists: dict[str, dict[str, int]] = {}
        self._written: dict[tuple[Ruling, str], int] = {}

    def number(self, layer: str, at: Sequence[int]) -> int:
        """The class of a cell, given the numbers of its modules."""
        number = layer.rpartition(".")[2]
        return self.classes(tuple(self._member(self.atlas.modules[one], one, number) for one in at))

    def _member(self, module: MapModule, at: int, number: str) -> tuple[Hashable, ...]:
        tensors = tuple((shown(cell.suffix), shown(cell.dtype), cell.shape) for cell in module.tensors)
        before = self._vector((view.before for view in self.atlas.views), at, number)
        after = self._vector((view.after for view in self.atlas.views), at, number)
        head = _experts(module.experts), max(1, len(module.experts)), self.schemes(module.scheme)
        return (*head, self.tensors(tensors), int(module.listed), before, after)

    def _vector(self, standings: Iterable[Standing], at: int, number: str) -> int:
        sets = (tuple(self._ruling(ruling, number) for ruling in standing.rulings[at]) for standing in standings)
        return self.vectors(tuple(self.sets(found) for found in sets))

    def _ruling(self, ruling: Ruling, number: str) -> int:
        at = self._written.get((ruling, number))
        if at is None:
            at = self._written[ruling, number] = self.rulings(self._spelled(ruling, number))
        return at

    def _spelled(self, ruling: Ruling, number: str) -> tuple[str, ...]:
        runtime, rule, entry, why, error = (
            _numbered(shown(text), number)
            for text in (ruling.runtime, ruling.rule, ruling.entry, ruling.why, ruling.error)
        )
        head = ruling.part, runtime, ruling.decision, ruling.scheme, rule, self._place(ruling), entry
        return (*head, ruling.verdict, why, error)

    def _place(self, ruling: Ruling) -> str:
        """Where the entry stands; its index in a list goes to `places`, since it differs from layer to layer."""
        if not ruling.file:
            return ""
        base, _, index = ruling.pointer.rpartition("/")
        if not index.isdecimal():
            return shown(f"{ruling.file} {ruling.pointer}")
        place = shown(f"{ruling.file} {base}")
        self._lists.setdefault(place, {}).setdefault(shown(ruling.entry), int(index))
        return place

    def places(self) -> Mapping[str, Mapping[str, int]]:
        """The index of every entry that decides something, unless there are very many."""
        return self._lists if sum(map(len, self._lists.values())) <= _MOST_PLACES else {}


def _numbered(text: str, number: str) -> str:
    """A text with the layer's number left open, so that it is the same in every layer."""
    return _number(number).sub(LAYER, text) if number and number in text else text


@lru_cache(maxsize=1024)
def _number(number: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(number)}(?!\w)")


def _experts(experts: Sequence[int]) -> str:
    text = numbers(experts)
    return text if len(text) <= _LONGEST_LIST else f"{text[:_LONGEST_LIST].rpartition(',')[0]},…"


def _view(view: MapView) -> dict[str, Any]:
    before, after = ({row.part: _verdict(row) for row in side.rows} for side in (view.before, view.after))
    return {
        "engine": view.engine,
        "releases": [view.releases[0], view.releases[-1], len(view.releases)],
        "latest": view.latest,
        "before": before,
        "after": after,
    }


def _verdict(row: EngineRow) -> list[str]:
    return [row.verdict, shown(row.reason), shown(row.error)]


Cells = Mapping[tuple[str, str, str], Sequence[int]]


def _cells(modules: Sequence[MapModule]) -> Cells:
    """(layer, part, kind) -> the modules there, by number."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for at, module in enumerate(modules):
        found.setdefault((module.layer, module.part, module.kind), []).append(at)
    return found


def _grids(cells: Cells) -> list[Grid]:
    """Sections (layers under one path) that share half of their kinds or more stand in one grid."""
    sections: dict[tuple[str, str], dict[str, list[str]]] = {}
    for layer, part, kind in cells:
        if layer:
            sections.setdefault((layer.rpartition(".")[0], part), {}).setdefault(layer, []).append(kind)
    grids: list[Grid] = []
    for (prefix, part), layers in sorted(sections.items(), key=lambda item: -len(item[1])):
        kinds = dict.fromkeys(kind for own in layers.values() for kind in own)
        home = next((grid for grid in grids if 2 * len(kinds.keys() & grid["cols"].keys()) >= len(kinds)), None)
        if home is None:
            grids.append(home := {"cols": {}, "sections": []})
        home["cols"].update(kinds)
        home["sections"].append((prefix, part, sorted(layers, key=_layer_number)))
    for grid in grids:
        grid["sections"].sort(key=lambda section: section[1] != "draft")
    return grids


def _layer_number(layer: str) -> int:
    return int(layer.rpartition(".")[2])


def _drawn(grid: Grid, cells: Cells, number: Callable[[str, Sequence[int]], int]) -> Grid:
    columns = sorted(grid["cols"], key=_column_order(grid["cols"]))
    sections = [
        [
            shown(prefix),
            part,
            [
                [_layer_number(layer), [_class(cells, layer, part, kind, number) for kind in columns]]
                for layer in layers
            ],
        ]
        for prefix, part, layers in grid["sections"]
    ]
    return {"cols": list(map(shown, columns)), "sections": sections}


def _class(cells: Cells, layer: str, part: str, kind: str, number: Callable[[str, Sequence[int]], int]) -> int:
    at = cells.get((layer, part, kind))
    return number(layer, at) if at else -1


def _column_order(kinds: Iterable[str]) -> Callable[[str], tuple[object, ...]]:
    """Attention, the feed-forward part, the experts, then the rest; modules of one parent side by side."""
    parents = dict.fromkeys(kind.rpartition(".")[0] for kind in kinds)
    order = {parent: at for at, parent in enumerate(parents)}

    def key(kind: str) -> tuple[object, ...]:
        parent, _, leaf = kind.rpartition(".")
        rank = 0 if "attn" in parent or "attention" in parent else 3 if not parent else 2 if "expert" in parent else 1
        flow = next((at for at, front in enumerate(_LEAVES) if leaf.startswith(front)), len(_LEAVES))
        return rank, order[parent], flow, leaf

    return key
