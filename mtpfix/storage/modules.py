"""A checkpoint's tensors as the modules that they make up. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from operator import itemgetter

from mtpfix import late
from mtpfix.frozen import NamedTuple
from mtpfix.model import Cell, Checkpoint, RawModule, StoredModule, StoredScheme, Tensor
from mtpfix.names import MAX_NAME, natural_key, tensor_name
from mtpfix.storage.classify import classify
from mtpfix.storage.layouts import Shape
from mtpfix.storage.stacks import StackPart, stack_parts

_EXPERTS = ".experts."
_NUMBER = late.pattern(r"0|[1-9][0-9]{0,8}")
_QUANTIZER = "_quantizer"
_STACK_OWNERS = ("experts", "moe")

Cells = tuple[Cell, ...]
Placed = tuple[Cell, str]
_Layout = dict[str, int]  # what follows the name of experts' holder -> the number of the module's kind


class _Kind(NamedTuple):
    """What modules with equal tensors share; `number` tells kinds apart."""

    scheme: StoredScheme
    shape: Shape
    number: int

    @property
    def is_linear(self) -> bool:
        return self.scheme.kind in ("plain", "quantized")


_Row = tuple[str, _Kind, tuple[int, ...]]
_CELLS = itemgetter(1)  # of a RawModule
_MOST_LAYOUTS = 8


class _Kinds:
    """Kinds by the identity of `cells`, which equal modules of one reading share."""

    def __init__(self) -> None:
        self._by_id: dict[int, _Kind] = {}
        self._number: dict[int, int] = {}
        self._alive: list[Cells] = []  # an id holds only as long as its object lives
        self._numbers: dict[Cells, int] = {}

    def _judge(self, cells: Cells) -> _Kind:
        """The kind of these tensors, found out and remembered."""
        number = self._numbers.setdefault(tuple(sorted(cells)), len(self._numbers))
        kind = self._by_id[id(cells)] = _Kind(*classify(cells), number)
        self._number[id(cells)] = number
        self._alive.append(cells)
        return kind

    def of(self, cells: Cells) -> _Kind:
        """The kind of these tensors."""
        return self._by_id.get(id(cells)) or self._judge(cells)

    def numbers(self, modules: Collection[RawModule]) -> list[int]:
        """The number of each module's kind."""
        try:
            return [*map(self._number.__getitem__, map(id, map(_CELLS, modules)))]
        except KeyError:
            return [self.of(module.cells).number for module in modules]


def stored_modules(checkpoint: Checkpoint) -> tuple[StoredModule, ...]:
    """Every module of a checkpoint with its scheme, in natural order of names.

    Experts that are stored alike are one value; a fused stack (`...experts.gate_up_proj`) is a module of its own;
    tensors below a parameter (`weight.absmax`) or a quantizer (`weight_quantizer._amax`) belong to the module that
    owns it. Neither the order of shards nor that of tensors changes the result. Names without end are left out: they
    are valid, but of no model's module.
    """
    kinds = _Kinds()
    modules = [module for module in checkpoint.modules.values() if len(module[0]) <= MAX_NAME]
    ids = list(map(id, map(_CELLS, modules)))
    distinct = dict(zip(ids, map(_CELLS, modules), strict=True))
    odd = {number for number, cells in distinct.items() if not kinds.of(cells).is_linear}
    strange = [module for module, number in zip(modules, ids, strict=True) if number in odd]
    joined = _joined(strange, checkpoint.modules)
    stacks, left = _unstacked([joined.get(module.name, module) for module in strange])
    changed = joined | left
    if changed:
        modules = [module for module in modules if module.name not in changed]
        modules += [module for module in changed.values() if module is not None]
    found = [*stacks, *_collapsed(modules, kinds)]
    return tuple(sorted(found, key=lambda stored: natural_key(stored.name)))


def tensors_of(module: RawModule) -> tuple[Tensor, ...]:
    """The header rows of a module, full names and shards included."""
    return tuple(
        Tensor(tensor_name(module.name, cell.suffix), cell.dtype, cell.shape, shard) for cell, shard in _placed(module)
    )


def _placed(module: RawModule) -> Iterator[Placed]:
    return zip(module.cells, module.shards or (module.shard,) * len(module.cells), strict=True)


def _module(name: str, placed: Sequence[Placed], *, listed: bool) -> RawModule:
    shards = tuple(shard for _, shard in placed)
    spread = shards if len(set(shards)) > 1 else ()
    return RawModule(name, tuple(cell for cell, _ in placed), shards[0], listed, spread)


# --- experts ----------------------------------------------------------------------------------------------------------


def _collapsed(modules: Iterable[RawModule], kinds: _Kinds) -> Iterator[StoredModule]:
    """The modules; experts of one projection that are stored alike as one."""
    holders: dict[tuple[str, bool], dict[str, RawModule]] = {}
    last, held = ("", True), dict[str, RawModule]()
    for module in modules:
        head, marker, rest = module[0].partition(_EXPERTS)
        if not marker:
            kind = kinds.of(module[1])
            yield StoredModule(module[0], kind.scheme, kind.shape, module)
            continue
        if (head, module[3]) != last:
            last = head, module[3]
            held = holders.setdefault(last, {})
        held[rest] = module
    known: list[tuple[_Layout, tuple[_Row, ...]]] = []
    for held in holders.values():
        for rest, kind, experts in _rows_of(held, kinds, known):
            yield StoredModule(held[rest].name, kind.scheme, kind.shape, held[rest], experts)


def _rows_of(
    held: Mapping[str, RawModule], kinds: _Kinds, known: list[tuple[_Layout, tuple[_Row, ...]]]
) -> tuple[_Row, ...]:
    """The rows of the experts of a holder, by what follows the holder's name: one layer has the same as another.

    known  layouts met before, with their rows
    """
    layout = dict(zip(held, kinds.numbers(held.values()), strict=True))
    for other, rows in known[:_MOST_LAYOUTS]:
        if other == layout:
            return rows
    rows = tuple(_rows(layout, held, kinds))
    known.append((layout, rows))
    return rows


def _rows(layout: _Layout, held: Mapping[str, RawModule], kinds: _Kinds) -> Iterator[_Row]:
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for rest, kind in layout.items():
        number, _, projection = rest.partition(".")
        rows.setdefault((projection, kind), {})[number] = rest
    for row in rows.values():
        for number, experts in _chosen(row.keys()).items():
            rest = row[number]
            yield rest, kinds.of(held[rest].cells), experts


def _chosen(numbers: Set[str]) -> dict[str, tuple[int, ...]]:
    """One expert for all that are numbered, and each that is not (`X.experts.shared.gate_proj`)."""
    if numbers == _first_numbers(len(numbers)):
        return {"0": tuple(range(len(numbers)))}
    others = [number for number in numbers if not _NUMBER.fullmatch(number)]
    experts = tuple(sorted(map(int, numbers - {*others})))
    chosen: dict[str, tuple[int, ...]] = dict.fromkeys(others, ())
    return chosen | {str(experts[0]): experts} if experts else chosen


@lru_cache(maxsize=64)
def _first_numbers(count: int) -> frozenset[str]:
    return frozenset(map(str, range(count)))


# --- tensors below a parameter or a quantizer -------------------------------------------------------------------------


def _joined(strange: Iterable[RawModule], modules: Mapping[str, RawModule]) -> dict[str, RawModule | None]:
    """Owners with all that belongs to them, and None for what was joined to one."""
    below: dict[str, list[RawModule]] = {}
    for module in strange:
        owner = _owner(module.name)
        if owner:
            below.setdefault(owner, []).append(module)
    changed: dict[str, RawModule | None] = {}
    for owner, members in below.items():
        own = [modules[owner]] if owner in modules else []
        changed[owner] = _join(owner, [*own, *sorted(members, key=lambda member: member.name)])
        changed |= dict.fromkeys(member.name for member in members)
    return changed


def _owner(name: str) -> str:
    """The module that a path below a parameter or a quantizer belongs to, or ""."""
    steps = name.removesuffix(".quant_state").split(".")
    if steps[-1] == "weight" and "parametrizations" not in steps:
        return ".".join(steps[:-1])
    at = next((at for at, step in enumerate(steps) if step.endswith(_QUANTIZER)), 0)
    return ".".join(steps[:at])


def _join(owner: str, members: Sequence[RawModule]) -> RawModule:
    placed = [
        (cell._replace(suffix=tensor_name(member.name, cell.suffix)[len(owner) + 1 :]), shard)
        for member in members
        for cell, shard in _placed(member)
    ]
    return _module(owner, placed, listed=any(member.listed for member in members))


# --- fused stacks -----------------------------------------------------------------------------------------------------


def _unstacked(modules: Iterable[RawModule | None]) -> tuple[list[StoredModule], dict[str, RawModule | None]]:
    """Fused stacks of experts as modules of their own, and what is left of each of their owners."""
    stacks: list[StoredModule] = []
    left: dict[str, RawModule | None] = {}
    for module in modules:
        if module is None or module.name.rpartition(".")[2] not in _STACK_OWNERS:
            continue
        parts = stack_parts(module.cells)
        if parts:
            taken = {suffix for part in parts for suffix in part.roles}
            rest = [(cell, shard) for cell, shard in _placed(module) if cell.suffix not in taken]
            left[module.name] = _module(module.name, rest, listed=module.listed) if rest else None
            stacks += [_stack(module, part) for part in parts]
    return stacks, left


def _stack(module: RawModule, part: StackPart) -> StoredModule:
    placed = [(cell, shard) for cell, shard in _placed(module) if cell.suffix in part.roles]
    scheme, shape = classify(tuple(cell._replace(suffix=part.roles[cell.suffix]) for cell, _ in placed))
    raw = _module(module.name, placed, listed=module.listed)
    return StoredModule(tensor_name(module.name, part.name), scheme, shape, raw)
