"""Whether a base checkpoint is the one that another was made from: every number that differs. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.families.base import config_value
from mtpfix.model import Cell, RawModule
from mtpfix.names import shown
from mtpfix.world import Unit, World

# What a config calls the sizes that a draft's tensors depend on.
_NUMBERS = (
    ("the hidden size", ("hidden_size", "n_embd", "d_model")),
    ("the vocabulary", ("vocab_size",)),
    ("the number of experts", ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")),
    ("the number of shared experts", ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")),
    ("the width of an expert", ("moe_intermediate_size", "expert_ffn_hidden_size")),
    ("the width of the shared expert", ("shared_expert_intermediate_size", "share_expert_dim")),
    ("the intermediate size", ("intermediate_size", "ffn_hidden_size")),
    ("the number of attention heads", ("num_attention_heads",)),
    ("the number of key-value heads", ("num_key_value_heads", "num_attention_groups")),
    ("the size of a head", ("head_dim",)),
    ("the rank of the queries", ("q_lora_rank",)),
    ("the rank of the keys and values", ("kv_lora_rank",)),
    ("the size of a head's rotated part", ("qk_rope_head_dim",)),
    ("the size of a head's plain part", ("qk_nope_head_dim",)),
    ("the size of a head's values", ("v_head_dim",)),
)
_EXACT = ("fp8", "nvfp4", "mxfp", "ct-nvfp4", "ct-mxfp4", "dsv4", "int8", "ct-w8a8", "bnb8")
_FLOATS = ("BF16", "F16", "F32")
_SCALES = ("scale", "scale_inv", "scale_2", "scales", "absmax")


def misfits(here: World, base: World) -> tuple[str, ...]:
    """What tells that the draft of `base` does not belong to the target of `here`, in words; () where it fits."""
    if here.family is None or base.family is None:
        unknown = here if here.family is None else base
        return (f"the family of {unknown.checkpoint.source.id} is not known: {unknown.family_reason}",)
    if here.family.name != base.family.name:
        return (f"the architecture: {here.family.title} here, {base.family.title} there",)
    return (*_numbers(here, base), *_shapes(here, base))


def _numbers(here: World, base: World) -> Iterator[str]:
    assert here.family is not None
    rows = (("the number of layers", (here.family.layers_key,)), *_NUMBERS)
    for what, keys in rows:
        for key in keys:
            one, other = config_value(here.config, (key,)), config_value(base.config, (key,))
            if one is not None and other is not None and one != other:
                yield f"{what} ({key}): {shown(one)} here, {shown(other)} there"


def _shapes(here: World, base: World) -> Iterator[str]:
    """What is stored of the target in both, the first that differs of each kind."""
    yield from _first(_units(here, base))
    yield from _first(_drafts(here, base))
    yield from _first(_plain_tensors(here, base))
    mine, theirs = _fronts(here, draft=False), _fronts(base, draft=False)
    if mine and theirs and mine.isdisjoint(theirs) and not theirs.isdisjoint(_fronts(base, draft=True)):
        yield f"the names of the layers: {min(mine)}.layers here, {min(theirs)}.layers there"


def _drafts(here: World, base: World) -> Iterator[str]:
    """The draft's norms and experts against those of the decoder layers, which it is built like."""
    sizes = {cell.shape for name, raw in _norms(here) if not here.in_draft(name) for cell in raw.cells}
    for name, raw in _norms(base):
        shape = raw.cells[0].shape
        if base.in_draft(name) and sizes and shape not in sizes:
            yield f"the shape of {name}: {sorted(map(list, sizes))[0]} in the layers here, {list(shape)} there"
    counts = {_experts(unit) for unit in here.by_part["target"]} - {0}
    for unit in base.by_part["draft"]:
        if counts and _experts(unit) and _experts(unit) not in counts:
            yield f"the experts of {unit.name}: {max(counts)} in the layers here, {_experts(unit)} there"


def _norms(world: World) -> Iterator[tuple[str, RawModule]]:
    for name, raw in world.checkpoint.modules.items():
        if name.endswith(".input_layernorm") and ".layers." in name:
            yield name, raw


def _first(found: Iterator[str]) -> Iterator[str]:
    one = next(found, None)
    if one is not None:
        yield one


def _units(here: World, base: World) -> Iterator[str]:
    theirs = {unit.name: unit for unit in base.by_part["target"]}
    for unit in here.by_part["target"]:
        other = theirs.get(unit.name)
        if other is None:
            continue
        if _experts(unit) != _experts(other):
            yield f"the experts of {unit.name}: {_experts(unit)} are stored here, {_experts(other)} there"
        one, two = _size(unit), _size(other)
        if one and two and one[: len(two)] != two[: len(one)]:
            yield f"the shape of {unit.name}: {list(one)} here, {list(two)} there"


def _size(unit: Unit) -> tuple[int, ...]:
    """The logical shape, as far as the tensors tell it for sure: of packed words not how many hold a row."""
    shape = unit.stored.shape
    sure = unit.stored.plain or unit.stored.scheme.name.startswith(_EXACT)
    return () if not all(shape) else shape if sure else shape[:-1]


def _experts(unit: Unit) -> int:
    return len(unit.stored.experts)


def _plain_tensors(here: World, base: World) -> Iterator[str]:
    """Norms, embeddings and the like, which no quantizer touches."""
    theirs = base.checkpoint.modules
    for name, module in here.checkpoint.modules.items():
        other = theirs.get(name)
        if other is None or here.in_draft(name):
            continue
        shapes = {cell.suffix: cell.shape for cell in other.cells if cell.dtype in _FLOATS}
        for cell in _floats(module):
            found = shapes.get(cell.suffix, cell.shape)
            if found != cell.shape:
                yield f"the shape of {name}.{cell.suffix}: {list(cell.shape)} here, {list(found)} there"


def _floats(module: RawModule) -> Iterator[Cell]:
    return (cell for cell in module.cells if cell.dtype in _FLOATS and not cell.suffix.endswith(_SCALES))


def _fronts(world: World, *, draft: bool) -> set[str]:
    """What stands before `.layers.` in the names of the target or the draft."""
    names = (name for name in world.checkpoint.modules if ".layers." in name and world.in_draft(name) is draft)
    return {name.partition(".layers.")[0] for name in names}
