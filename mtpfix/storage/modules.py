"""A checkpoint's tensors as the modules that they make up. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mtpfix.model import Cell, Checkpoint, RawModule, StoredModule, StoredScheme, Tensor
from mtpfix.names import natural_key, tensor_name
from mtpfix.storage.schemes import Shape, classify

_EXPERTS = ".experts."
_NUMBER = re.compile(r"0|[1-9][0-9]*")

# In a fused stack `gate_up_proj_scale` is to `gate_up_proj` what `weight_scale` is to `weight`.
_STACK_OWNERS = ("experts", "moe")
_STACK_SUFFIXES = {
    "": "weight",
    "scale": "weight_scale",
    "scale_inv": "weight_scale_inv",
    "scale_2": "weight_scale_2",
    "packed": "weight_packed",
    "global_scale": "weight_global_scale",
    "zero_point": "weight_zero_point",
}
_STACK_WORDS = {*_STACK_SUFFIXES, *_STACK_SUFFIXES.values(), "blocks", "scales", "bias", "input_scale"} - {""}
_STACK_PART = re.compile(rf"(.+?)(?:_({'|'.join(sorted(_STACK_WORDS, key=len, reverse=True))}))?")
_STACK_WEIGHTS = {"weight": 3, "weight_packed": 3, "blocks": 4}

ExpertKey = tuple[str, int, str]


class _Kind(NamedTuple):
    """What modules with equal tensors share; `number` tells kinds apart."""

    scheme: StoredScheme
    shape: Shape
    number: int


class _Kinds:
    """Kinds by the identity of `cells`, which equal modules of one reading share."""

    def __init__(self) -> None:
        self.by_id: dict[int, _Kind] = {}
        self._alive: list[tuple[Cell, ...]] = []  # an id holds only as long as its object lives
        self._numbers: dict[tuple[Cell, ...], int] = {}

    def judge(self, cells: tuple[Cell, ...]) -> _Kind:
        """The kind of these tensors, found out and remembered."""
        number = self._numbers.setdefault(tuple(sorted(cells)), len(self._numbers))
        kind = self.by_id[id(cells)] = _Kind(*classify(cells), number)
        self._alive.append(cells)
        return kind

    def of(self, module: RawModule) -> _Kind:
        """The kind of a module."""
        return self.by_id.get(id(module.cells)) or self.judge(module.cells)


def stored_modules(checkpoint: Checkpoint) -> tuple[StoredModule, ...]:
    """Every module of a checkpoint with its scheme, in natural order of names.

    Experts that are stored alike are one value; a fused stack (`...experts.gate_up_proj`) is a module of its own; tensors
    below a parameter (`weight.absmax`) or a quantizer (`weight_quantizer._amax`) belong to the module that owns it.
    Neither the order of shards nor that of tensors changes the result.
    """
    kinds = _Kinds()
    known, judge = kinds.by_id.get, kinds.judge
    regular: list[RawModule] = []
    strange: list[RawModule] = []
    for module in checkpoint.modules.values():
        kind = known(id(module.cells)) or judge(module.cells)
        (regular if kind.scheme.kind in ("plain", "quantized") else strange).append(module)
    regular, strange = _with_belongings(regular, strange)
    stacks, rest = _unstacked(strange)
    found = [*stacks, *_collapsed([*regular, *rest], kinds)]
    return tuple(sorted(found, key=lambda stored: natural_key(stored.name)))


def expert_key(name: str) -> ExpertKey | None:
    """`X.experts.5.gate_proj` as ("X.experts", 5, "gate_proj"); None for every other name."""
    head, marker, rest = name.partition(_EXPERTS)
    number, _, projection = rest.partition(".")
    if not marker or not _NUMBER.fullmatch(number):
        return None
    return head + _EXPERTS[:-1], int(number), projection


def tensors_of(module: RawModule) -> tuple[Tensor, ...]:
    """The header rows of a module, full names and shards included."""
    return tuple(
        Tensor(tensor_name(module.name, cell.suffix), cell.dtype, cell.shape, shard) for cell, shard in _placed(module)
    )


def _placed(module: RawModule) -> Iterator[tuple[Cell, str]]:
    return zip(module.cells, module.shards or (module.shard,) * len(module.cells), strict=True)


# --- experts ----------------------------------------------------------------------------------------------------------


def _collapsed(modules: Iterable[RawModule], kinds: _Kinds) -> Iterator[StoredModule]:
    """The modules; experts of one projection that are stored alike as one."""
    rows: dict[tuple[str, str, int, bool], dict[str, RawModule]] = {}
    known, judge = kinds.by_id.get, kinds.judge
    for module in modules:
        kind = known(id(module.cells)) or judge(module.cells)
        head, marker, rest = module.name.partition(_EXPERTS)
        if not marker:
            yield StoredModule(module.name, kind.scheme, kind.shape, module)
            continue
        number, _, projection = rest.partition(".")
        key = head, projection, kind.number, module.listed
        try:
            rows[key][number] = module
        except KeyError:
            rows[key] = {number: module}
    for row in rows.values():
        yield from _row(row, kinds)


def _row(row: Mapping[str, RawModule], kinds: _Kinds) -> Iterator[StoredModule]:
    numbers = sorted(map(int, filter(_NUMBER.fullmatch, row)))
    for number, module in row.items():
        if not numbers or number == str(numbers[0]) or not _NUMBER.fullmatch(number):
            kind = kinds.of(module)
            experts = tuple(numbers) if number == str(numbers[0] if numbers else "") else ()
            yield StoredModule(module.name, kind.scheme, kind.shape, module, experts)


# --- tensors below a parameter or a quantizer -------------------------------------------------------------------------


def _with_belongings(
    regular: list[RawModule], strange: list[RawModule]
) -> tuple[list[RawModule], list[RawModule]]:
    """The modules, with tensors below a parameter or a quantizer moved to the module that owns them."""
    owners = {module.name: owner for module in strange if (owner := _owner(module.name))}
    if not owners:
        return regular, strange
    parts: dict[str, list[RawModule]] = {}
    for module in strange:
        if module.name in owners:
            parts.setdefault(owners[module.name], []).append(module)
    whole = [module for module in strange if module.name not in owners and module.name not in parts]
    for module in (*regular, *strange):
        if module.name in parts and module.name not in owners:
            parts[module.name].insert(0, module)
    whole += [_joined(owner, members) for owner, members in parts.items()]
    return [module for module in regular if module.name not in parts], whole


def _owner(name: str) -> str:
    """The module that a path below a parameter or a quantizer belongs to, or ""."""
    steps = name.split(".")
    for at, step in enumerate(steps[1:], 1):
        below_weight = step == "weight" and steps[at - 1] != "parametrizations"
        if step.endswith("_quantizer") or (below_weight and steps[at + 1 :] in ([], ["quant_state"])):
            return ".".join(steps[:at])
    return ""


def _joined(owner: str, members: Sequence[RawModule]) -> RawModule:
    placed = [
        (cell._replace(suffix=tensor_name(member.name, cell.suffix)[len(owner) + 1 :]), shard)
        for member in members
        for cell, shard in _placed(member)
    ]
    return _module(owner, placed, listed=any(member.listed for member in members))


def _module(name: str, placed: Sequence[tuple[Cell, str]], *, listed: bool) -> RawModule:
    shards = tuple(shard for _, shard in placed)
    spread = shards if len(set(shards)) > 1 else ()
    return RawModule(name, tuple(cell for cell, _ in placed), shards[0], listed, spread)


# --- fused stacks -----------------------------------------------------------------------------------------------------


def _unstacked(modules: Iterable[RawModule]) -> tuple[list[StoredModule], list[RawModule]]:
    """Fused stacks of experts as modules of their own, and the modules without them."""
    stacks: list[StoredModule] = []
    rest: list[RawModule] = []
    for module in modules:
        if module.name.rpartition(".")[2] not in _STACK_OWNERS:
            rest.append(module)
            continue
        left = list(_placed(module))
        for name, own in _stack_parts(module).items():
            stacks.append(_stack(module, name, own))
            left = [(cell, shard) for cell, shard in left if cell.suffix not in own]
        if left:
            rest.append(_module(module.name, left, listed=module.listed))
    return stacks, rest


def _stack_parts(module: RawModule) -> dict[str, dict[str, str]]:
    """Name of a stack -> its tensors' suffixes -> what they would be called in a module of their own."""
    groups: dict[str, dict[str, str]] = {}
    for cell in module.cells:
        match = _STACK_PART.fullmatch(cell.suffix)
        if match is not None:
            word = match[2] or ""
            groups.setdefault(match[1], {})[cell.suffix] = _STACK_SUFFIXES.get(word, word)
    ranks = {cell.suffix: len(cell.shape) for cell in module.cells}
    return {
        name: own
        for name, own in groups.items()
        if any(_STACK_WEIGHTS.get(role) == ranks[suffix] for suffix, role in own.items())
    }


def _stack(module: RawModule, name: str, own: Mapping[str, str]) -> StoredModule:
    placed = [(cell, shard) for cell, shard in _placed(module) if cell.suffix in own]
    scheme, shape = classify(tuple(cell._replace(suffix=own[cell.suffix]) for cell, _ in placed))
    plain_name = next((suffix for suffix, role in own.items() if role == "weight"), name)
    return StoredModule(
        f"{module.name}.{plain_name}", scheme, shape, _module(module.name, placed, listed=module.listed)
    )
