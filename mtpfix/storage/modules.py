"""A checkpoint's tensors as the modules that they make up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain, compress
from operator import not_

from mtpfix import late
from mtpfix.frozen import NamedTuple
from mtpfix.model import Cell, Checkpoint, RawModule, StoredModule, StoredScheme, Tensor
from mtpfix.modules import EXPERTS, Block, Cells, Modules
from mtpfix.names import MAX_NAME, natural_key, tensor_name
from mtpfix.storage.classify import classify
from mtpfix.storage.layouts import Shape
from mtpfix.storage.stacks import StackPart, stack_parts

_NUMBER = late.pattern(r"0|[1-9][0-9]{0,8}")
_QUANTIZER = "_quantizer"
_STACK_OWNERS = ("experts", "moe")

Placed = tuple[Cell, str]
_Alike = tuple[str, bool, str, int]  # experts' holder, listed or not, the rest of the name, the number of the kind


class _Kind(NamedTuple):
    """What modules with equal tensors share; `number` tells kinds apart."""

    scheme: StoredScheme
    shape: Shape
    number: int

    @property
    def is_linear(self) -> bool:
        return self.scheme.kind in ("plain", "quantized")


class _Kinds:
    """Kinds by the identity of `cells`, which equal modules of one reading share."""

    def __init__(self) -> None:
        self._by_id: dict[int, _Kind] = {}
        self._alive: list[Cells] = []  # an id holds only as long as its object lives
        self._numbers: dict[Cells, int] = {}

    def _judge(self, cells: Cells) -> _Kind:
        """The kind of these tensors, found out and remembered."""
        number = self._numbers.setdefault(tuple(sorted(cells)), len(self._numbers))
        kind = self._by_id[id(cells)] = _Kind(*classify(cells), number)
        self._alive.append(cells)
        return kind

    def of(self, cells: Cells) -> _Kind:
        """The kind of these tensors."""
        return self._by_id.get(id(cells)) or self._judge(cells)


def stored_modules(checkpoint: Checkpoint) -> tuple[StoredModule, ...]:
    """Every module of a checkpoint with its scheme, in natural order of names.

    Experts that are stored alike are one value; a fused stack (`...experts.gate_up_proj`) is a module of its own;
    tensors below a parameter (`weight.absmax`) or a quantizer (`weight_quantizer._amax`) belong to the module that
    owns it. Neither the order of shards nor that of tensors changes the result. Names without end are left out: they
    are valid, but of no model's module.
    """
    kinds = _Kinds()
    singles, blocks = _apart(checkpoint.modules, kinds)
    modules = [module for module in singles if len(module.name) <= MAX_NAME]
    strange = [module for module in modules if not kinds.of(module.cells).is_linear]
    joined = _joined(strange, checkpoint.modules)
    stacks, left = _unstacked([joined.get(module.name, module) for module in strange])
    changed = joined | left
    if any(name.startswith(block.holder) for block in blocks for name in changed):
        modules, blocks = list(checkpoint.modules.values()), ()
    if changed:
        modules = [module for module in modules if module.name not in changed]
        modules += [module for module in changed.values() if module is not None]
    found = [*stacks, *_collapsed(modules, blocks, kinds)]
    return tuple(sorted(found, key=lambda stored: natural_key(stored.name)))


def _apart(modules: Mapping[str, RawModule], kinds: _Kinds) -> tuple[list[RawModule], tuple[Block, ...]]:
    """The modules to be looked at one by one, and blocks of experts that any format's linears make up."""
    if not isinstance(modules, Modules):
        return list(modules.values()), ()
    plain = [
        len(block.holder) < MAX_NAME // 2 and all(kinds.of(cells).is_linear for cells in block.cells.values())
        for block in modules.blocks
    ]
    odd = (module for block in compress(modules.blocks, map(not_, plain)) for module in block.modules())
    return [*modules.singles.values(), *odd], tuple(compress(modules.blocks, plain))


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


class _Alikes(NamedTuple):
    """Experts of one projection that are stored alike: those of blocks (numbers, tensors, shard) and single ones."""

    blocks: list[tuple[tuple[str, ...], Cells, str]]
    singles: dict[str, RawModule]

    def first(self, name: str, number: str) -> RawModule:
        """The module of some number, whose name is `name`."""
        found = self.singles.get(number)
        return found or next(RawModule(name, cells, shard) for held, cells, shard in self.blocks if number in held)


def _collapsed(modules: Iterable[RawModule], blocks: Iterable[Block], kinds: _Kinds) -> Iterator[StoredModule]:
    """The modules; experts of one projection that are stored alike as one."""
    rows: dict[_Alike, _Alikes] = {}
    for block in blocks:
        for rest, cells in block.cells.items():
            alike = block.holder, True, rest, kinds.of(cells).number
            rows.setdefault(alike, _Alikes([], {})).blocks.append((block.numbers, cells, block.shard))
    for module in modules:
        head, marker, rest = module.name.partition(EXPERTS)
        if not marker:
            kind = kinds.of(module.cells)
            yield StoredModule(module.name, kind.scheme, kind.shape, module)
            continue
        number, dot, projection = rest.partition(".")
        alike = head + marker, module.listed, dot + projection, kinds.of(module.cells).number
        rows.setdefault(alike, _Alikes([], {})).singles[number] = module
    known: dict[tuple[object, ...], dict[str, tuple[int, ...]]] = {}  # projections of one block share its numbers
    for (holder, _, rest, _), row in rows.items():
        numbers = [numbers for numbers, _, _ in row.blocks]
        at = (*map(id, numbers), *row.singles)
        if at not in known:
            known[at] = _chosen({*chain(*numbers, row.singles)})
        for number, experts in known[at].items():
            raw = row.first(f"{holder}{number}{rest}", number)
            kind = kinds.of(raw.cells)
            yield StoredModule(raw.name, kind.scheme, kind.shape, raw, experts)


def _chosen(numbers: Set[str]) -> dict[str, tuple[int, ...]]:
    """One expert for all that are numbered, and each that is not (`X.experts.shared.gate_proj`)."""
    texts, first = _first_numbers(len(numbers))
    if numbers == texts:
        return {"0": first}
    others = sorted(number for number in numbers if not _NUMBER.fullmatch(number))
    experts = tuple(sorted(map(int, numbers - {*others})))
    chosen: dict[str, tuple[int, ...]] = dict.fromkeys(others, ())
    return chosen | {str(experts[0]): experts} if experts else chosen


@lru_cache(maxsize=64)
def _first_numbers(count: int) -> tuple[frozenset[str], tuple[int, ...]]:
    """The numbers from 0 on, as they are spelled and as such: one value for all layers."""
    return frozenset(map(str, range(count))), tuple(range(count))


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
