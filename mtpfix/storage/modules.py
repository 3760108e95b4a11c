"""A checkpoint's tensors as the modules that they make up. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from mtpfix.model import Cell, Checkpoint, RawModule, StoredModule, StoredScheme, Tensor
from mtpfix.names import MAX_NAME, natural_key, tensor_name
from mtpfix.storage.classify import classify
from mtpfix.storage.layouts import Shape
from mtpfix.storage.stacks import StackPart, stack_parts

_EXPERTS = ".experts."
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_QUANTIZER = "_quantizer"
_STACK_OWNERS = ("experts", "moe")

Cells = tuple[Cell, ...]
Placed = tuple[Cell, str]


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
        self.by_id: dict[int, _Kind] = {}
        self._alive: list[Cells] = []  # an id holds only as long as its object lives
        self._numbers: dict[Cells, int] = {}

    def judge(self, cells: Cells) -> _Kind:
        """The kind of these tensors, found out and remembered."""
        number = self._numbers.setdefault(tuple(sorted(cells)), len(self._numbers))
        kind = self.by_id[id(cells)] = _Kind(*classify(cells), number)
        self._alive.append(cells)
        return kind

    def of(self, cells: Cells) -> _Kind:
        """The kind of these tensors."""
        return self.by_id.get(id(cells)) or self.judge(cells)


def stored_modules(checkpoint: Checkpoint) -> tuple[StoredModule, ...]:
    """Every module of a checkpoint with its scheme, in natural order of names.

    Experts that are stored alike are one value; a fused stack (`...experts.gate_up_proj`) is a module of its own;
    tensors below a parameter (`weight.absmax`) or a quantizer (`weight_quantizer._amax`) belong to the module that
    owns it. Neither the order of shards nor that of tensors changes the result. Names without end are left out: they
    are valid, but of no model's module.
    """
    kinds = _Kinds()
    modules = [module for module in checkpoint.modules.values() if len(module.name) <= MAX_NAME]
    distinct = {id(module.cells): module.cells for module in modules}
    odd = {number for number, cells in distinct.items() if not kinds.of(cells).is_linear}
    strange = [module for module in modules if id(module.cells) in odd]
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


def _collapsed(modules: Iterable[RawModule], kinds: _Kinds) -> list[StoredModule]:
    """The modules; experts of one projection that are stored alike as one."""
    found: list[StoredModule] = []
    rows: dict[tuple[str, str, int, bool], dict[str, RawModule]] = {}
    known, judge = kinds.by_id.get, kinds.judge
    for module in modules:
        name, cells, _, listed, _ = module
        kind = known(id(cells)) or judge(cells)
        head, marker, rest = name.partition(_EXPERTS)
        if not marker:
            found.append(StoredModule(name, kind.scheme, kind.shape, module))
            continue
        number, _, projection = rest.partition(".")
        key = head, projection, kind.number, listed
        try:
            rows[key][number] = module
        except KeyError:
            rows[key] = {number: module}
    for row in rows.values():
        found.extend(_row(row, kinds))
    return found


def _row(row: Mapping[str, RawModule], kinds: _Kinds) -> Iterator[StoredModule]:
    """One value for all that are numbered, one for each that is not (`X.experts.shared.gate_proj`)."""
    experts: tuple[int, ...] = ()
    if row.keys() == _first_numbers(len(row)):
        experts, others = tuple(range(len(row))), []
    else:
        others = [number for number in row if not _NUMBER.fullmatch(number)]
        experts = tuple(sorted(map(int, row.keys() - others)))
    chosen: dict[str, tuple[int, ...]] = dict.fromkeys(others, ())
    if experts:
        chosen[str(experts[0])] = experts
    for number, ids in chosen.items():
        kind = kinds.of(row[number].cells)
        yield StoredModule(row[number].name, kind.scheme, kind.shape, row[number], ids)


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
