"""Module laws: neither the order of tensors nor their spread over shards changes what a checkpoint holds."""

from __future__ import annotations

import re
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from lengths import many
from shards import Spec

from mtpfix.checkpoint.collect import Collector
from mtpfix.model import Checkpoint, Source, StoredModule, StoredScheme
from mtpfix.storage.modules import stored_modules, tensors_of

ONE: Spec = ("F32", ())
LAYOUTS: list[dict[str, Spec]] = [
    {"weight": ("BF16", (64, 64))},
    {"weight": ("BF16", (64,))},
    {"weight": ("U8", (64, 32)), "weight_scale": ("F8_E4M3", (64, 4)), "weight_scale_2": ONE, "input_scale": ONE},
    {"weight": ("F8_E4M3", (64, 64)), "weight_scale_inv": ("F32", (1, 1))},
    {"qweight": ("I32", (8, 64)), "qzeros": ("I32", (1, 8)), "scales": ("F16", (1, 64)), "g_idx": ("I32", (64,))},
    {"weight": ("U8", (2048, 1)), "weight.absmax": ("U8", (32,)), "weight.quant_map": ("F32", (16,))},
    {"weight": ("BF16", (64, 64)), "weight_quantizer._amax": ONE, "bias": ("BF16", (64,))},
    {"weight_scale": ONE},
    {"gate_up_proj": ("BF16", (4, 64, 64)), "down_proj": ("F8_E4M3", (4, 64, 64)), "down_proj_scale": ("F32", (4,))},
]
PATHS = st.from_regex(r"l\.[0-2]\.mlp(\.experts(\.([0-9]|1[0-9])\.(up|down)_proj)?)?|mtp(\.fc)?", fullmatch=True)
MODULES = st.dictionaries(PATHS, st.sampled_from(LAYOUTS), max_size=12)
SHARDS = st.integers(1, 4)

Seen = set[tuple[str, StoredScheme, tuple[int, ...], tuple[int, ...]]]


def seen(checkpoint: Checkpoint) -> Seen:
    return {(module.name, module.scheme, module.shape, module.experts) for module in stored_modules(checkpoint)}


def spread(tensors: list[tuple[str, Spec]], shards: int, random: Random) -> Checkpoint:
    """The tensors in another order, each in some shard."""
    random.shuffle(tensors)
    collector = Collector()
    for shard in range(shards):
        part = [(name, *spec) for number, (name, spec) in enumerate(tensors) if number % shards == shard]
        collector.add_rows(f"{shard}.safetensors", part, 0)
    collector.settle()
    return Checkpoint(Source("local", ""), collector.modules, {}, tuple(collector.shards), collector.tensor_count)


@many(100)
@given(MODULES, SHARDS, SHARDS, st.randoms(use_true_random=False))
def test_order_changes_nothing(modules: dict[str, dict[str, Spec]], first: int, second: int, random: Random) -> None:
    tensors = [(f"{path}.{suffix}", spec) for path, parts in modules.items() for suffix, spec in parts.items()]
    one, other = spread(tensors, first, random), spread(tensors, second, random)
    assert seen(one) == seen(other)
    assert [module.name for module in stored_modules(one)] == [module.name for module in stored_modules(other)]


@many(100)
@given(MODULES, SHARDS, st.randoms(use_true_random=False))
def test_every_tensor_is_somewhere(modules: dict[str, dict[str, Spec]], shards: int, random: Random) -> None:
    tensors = {f"{path}.{suffix}": spec for path, parts in modules.items() for suffix, spec in parts.items()}
    read = spread(list(tensors.items()), shards, random)
    held = [tensor for module in read.modules.values() for tensor in tensors_of(module)]
    assert sorted((tensor.name, (tensor.dtype, tensor.shape)) for tensor in held) == sorted(tensors.items())
    found = stored_modules(read)
    alone = {tensor.name for module in found if not module.experts for tensor in tensors_of(module.raw)}
    assert alone == {name for name in tensors if expert_key(name.rpartition(".")[0]) is None}
    wanted = {(*key[:2], key[2].partition(".")[0]) for name in tensors if (key := expert_key(name))}
    experts = {(head, number, projection) for module in found for head, number, projection in keys(module)}
    assert experts == wanted


def expert_key(name: str) -> tuple[str, int, str] | None:
    """`X.experts.5.gate_proj` as ("X.experts", 5, "gate_proj"); None for every other name."""
    found = re.fullmatch(r"(.+?\.experts)\.(0|[1-9][0-9]{0,8})(?:\.(.*))?", name)
    return (found[1], int(found[2]), found[3] or "") if found else None


def keys(module: StoredModule) -> list[tuple[str, int, str]]:
    """The experts that a module stands for."""
    key = expert_key(module.name)
    return [(key[0], number, key[2]) for number in module.experts] if key else []
