"""Tensors to modules: experts, fused stacks, belongings, and the corpus where it is at hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from bench.forge_large import forge
from shards import Spec

from mtpfix.checkpoint.collect import Collector
from mtpfix.checkpoint.local import read_local
from mtpfix.model import Cell, Checkpoint, Index, RawModule, Source, StoredModule, StoredScheme, Tensor
from mtpfix.storage.modules import stored_modules, tensors_of

SHARED = Path(os.environ.get("MTPFIX_SHARED") or Path(__file__).parents[3] / "shared")
CASES = sorted(path for path in (SHARED / "corpus" / "cases").glob("*.json") if not path.stem.startswith("full-"))
REAL = sorted(path.parent for path in (SHARED / "checkpoints").glob("*/config.json"))

ONE: Spec = ("F32", ())
BF16: Spec = ("BF16", (64, 64))
E = "m.layers.0.mlp.experts"


def nvfp4(module: str, out: int = 64, in_: int = 64) -> dict[str, Spec]:
    return {
        f"{module}.weight": ("U8", (out, in_ // 2)),
        f"{module}.weight_scale": ("F8_E4M3", (out, in_ // 16)),
        f"{module}.weight_scale_2": ONE,
        f"{module}.input_scale": ONE,
    }


def checkpoint(*shards: Mapping[str, Spec]) -> Checkpoint:
    collector = Collector()
    for number, tensors in enumerate(shards):
        collector.add_rows(f"{number}.safetensors", ((name, *spec) for name, spec in tensors.items()), 0)
    collector.settle()
    return Checkpoint(Source("local", "x"), collector.modules, {}, tuple(collector.shards), collector.tensor_count)


def modules(*shards: Mapping[str, Spec]) -> dict[str, StoredModule]:
    found = stored_modules(checkpoint(*shards))
    assert len({module.name for module in found}) == len(found)
    return {module.name: module for module in found}


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("model.layers.3.mlp.experts.5.gate_proj", 5),
        ("x.experts.0.a.b", 0),
        ("x.experts.12", 12),
        ("x.experts.1.experts.2.w", 1),
        ("x.experts.01.w", None),
        (f"x.experts.{'1' * 2000}.w", None),
        ("x.experts.gate_up_proj", None),
        ("x.shared_experts.0.w", None),
        ("experts.0.w", None),
        ("x.experts.\u0663.w", None),
    ],
)
def test_what_an_expert_is_called(name: str, number: int | None) -> None:
    (module,) = modules({f"{name}.weight": BF16}).values()
    assert module.name == name
    assert module.experts == (() if number is None else (number,))


def test_tensors_of() -> None:
    spread = RawModule("m.x", (Cell("weight", "U8", (1,)), Cell("scale", "F32", ())), "a", shards=("a", "b"))
    assert tensors_of(spread) == (Tensor("m.x.weight", "U8", (1,), "a"), Tensor("m.x.scale", "F32", (), "b"))
    assert tensors_of(RawModule("", (Cell("top", "F32", ()),), "a")) == (Tensor("top", "F32", (), "a"),)


def test_natural_order() -> None:
    names = ["b", "a.10", "a.9", "a.9.z", "", "a"]
    assert list(modules({f"{name}.weight" if name else "top": BF16 for name in names})) == [
        *("", "a", "a.9", "a.9.z", "a.10", "b")
    ]


def test_numbers_without_end() -> None:
    ones = "1" * 4000
    assert len(modules({f"a.{ones}.weight": BF16, f"{E}.{ones}.w1.weight": BF16, f"{E}.2.w1.weight": BF16})) == 3


def test_names_without_end_are_no_modules() -> None:
    assert list(modules({f"{'x' * 5000}.weight": BF16, f"a.{'b' * 4000}.weight": BF16})) == [f"a.{'b' * 4000}"]


# --- experts ----------------------------------------------------------------------------------------------------------


def test_experts_that_are_alike_are_one() -> None:
    tensors = {}
    for number in (10, 2, 0, 1):
        tensors |= nvfp4(f"{E}.{number}.gate_proj") | nvfp4(f"{E}.{number}.down_proj", 64, 32)
    found = modules(tensors)
    assert list(found) == [f"{E}.0.down_proj", f"{E}.0.gate_proj"]
    down = found[f"{E}.0.down_proj"]
    assert (down.scheme.name, down.shape, down.experts) == ("nvfp4", (64, 32), (0, 1, 2, 10))
    assert down.raw.name == f"{E}.0.down_proj"


def test_experts_that_differ_are_not() -> None:
    tensors = nvfp4(f"{E}.0.w1") | nvfp4(f"{E}.1.w1") | {f"{E}.2.w1.weight": BF16, f"{E}.3.w1.weight": BF16}
    tensors |= nvfp4(f"{E}.4.w1", 32) | {f"{E}.5.w1.weight": BF16, f"{E}.5.w1.bias": ("BF16", (64,))}
    found = modules(tensors)
    assert {name: module.experts for name, module in found.items()} == {
        f"{E}.0.w1": (0, 1),
        f"{E}.2.w1": (2, 3),
        f"{E}.4.w1": (4,),
        f"{E}.5.w1": (5,),
    }


def test_experts_of_other_names() -> None:
    found = modules(
        {f"{E}.shared.w1.weight": BF16, f"{E}.0.w1.weight": BF16, f"{E}.01.w1.weight": BF16, f"{E}.1.w1.weight": BF16}
    )
    assert {name: module.experts for name, module in found.items()} == {
        f"{E}.0.w1": (0, 1),
        f"{E}.01.w1": (),
        f"{E}.shared.w1": (),
    }


def test_experts_that_the_index_omits_stand_apart() -> None:
    read = checkpoint({f"{E}.{number}.w1.weight": BF16 for number in range(4)})
    raw = read.modules[f"{E}.1.w1"]
    held = dict(read.modules) | {raw.name: RawModule(raw.name, raw.cells, raw.shard, listed=False)}
    found = stored_modules(Checkpoint(read.source, held, {}, read.shards, 4))
    assert [(module.name, module.experts, module.raw.listed) for module in found] == [
        (f"{E}.0.w1", (0, 2, 3), True),
        (f"{E}.1.w1", (1,), False),
    ]


# --- stacks -----------------------------------------------------------------------------------------------------------


def test_stacks_of_plain_experts() -> None:
    found = modules({f"{E}.gate_up_proj": ("BF16", (8, 64, 32)), f"{E}.down_proj": ("BF16", (8, 32, 64))})
    assert {name: (module.scheme.name, module.shape) for name, module in found.items()} == {
        f"{E}.down_proj": ("bf16", (8, 32, 64)),
        f"{E}.gate_up_proj": ("bf16", (8, 64, 32)),
    }
    up = found[f"{E}.gate_up_proj"].raw
    assert tensors_of(up) == (Tensor(f"{E}.gate_up_proj", "BF16", (8, 64, 32), "0.safetensors"),)


@pytest.mark.parametrize(
    ("scheme", "parts"),
    [
        ("fp8-block", {"": ("F8_E4M3", (8, 256, 128)), "_scale_inv": ("F32", (8, 2, 1))}),
        ("fp8-block", {"": ("F8_E4M3", (8, 256, 128)), "_weight_scale_inv": ("F32", (8, 2, 1))}),
        ("fp8", {"": ("F8_E4M3", (8, 256, 128)), "_scale": ("F32", (8,)), "_input_scale": ONE}),
        (
            "nvfp4",
            {
                "": ("U8", (8, 256, 64)),
                "_weight_scale": ("F8_E4M3", (8, 256, 8)),
                "_weight_scale_2": ("F32", (8,)),
                "_input_scale": ("F32", (8,)),
            },
        ),
        ("gptoss-mxfp4", {"_blocks": ("U8", (8, 256, 4, 16)), "_scales": ("U8", (8, 256, 4))}),
        ("ct-mxfp4", {"_packed": ("U8", (8, 256, 64)), "_scale": ("U8", (8, 256, 4))}),
        ("odd", {"": ("BF16", (8, 256, 128)), "_scale": ("F32", (8,))}),
    ],
)
def test_stacks_of_quantized_experts(scheme: str, parts: Mapping[str, Spec]) -> None:
    tensors = {f"{E}.gate_up_proj{tail}": spec for tail, spec in parts.items()}
    found = modules(tensors | {f"{E}.gate_up_proj_bias": ("BF16", (8, 256))})
    assert list(found) == [f"{E}.gate_up_proj"]
    module = found[f"{E}.gate_up_proj"]
    assert module.scheme.name == scheme
    assert module.shape == (8, 256, 128)
    assert len(module.raw.cells) == len(parts) + 1


def test_stacks_with_weights_of_their_own() -> None:
    found = modules({f"{E}.w13_weight": ("BF16", (8, 64, 32)), f"{E}.w2_weight": ("BF16", (8, 32, 64))})
    assert list(found) == [f"{E}.w2_weight", f"{E}.w13_weight"]
    found = modules({"m.moe.gate_proj.weight": ("BF16", (8, 64, 32)), "m.moe.router_bias": ("F32", (8,))})
    assert found["m.moe.gate_proj"].shape == (8, 64, 32)
    assert found["m.moe"].scheme.kind == "other"


def test_what_no_stack_takes_stays() -> None:
    found = modules({f"{E}.down_proj": ("BF16", (8, 64, 32)), f"{E}.e_score_correction": ("F32", (8,))})
    assert list(found) == [E, f"{E}.down_proj"]
    assert [cell.suffix for cell in found[E].raw.cells] == ["e_score_correction"]
    assert list(modules({"m.attn.latent": ("BF16", (8, 64, 32))})) == ["m.attn"]


# --- belongings -------------------------------------------------------------------------------------------------------


def test_bitsandbytes_states_belong_to_the_weight() -> None:
    states = {"absmax": ("U8", (32,)), "quant_map": ("F32", (16,)), "quant_state.bitsandbytes__nf4": ("U8", (90,))}
    tensors = {f"m.x.weight.{state}": spec for state, spec in states.items()}
    found = modules({"m.x.weight": ("U8", (2048, 1))}, tensors)
    assert list(found) == ["m.x"]
    assert found["m.x"].scheme == StoredScheme("bnb4", "quantized")
    assert {tensor.name for tensor in tensors_of(found["m.x"].raw)} == {"m.x.weight", *tensors}
    assert set(found["m.x"].raw.shards) == {"0.safetensors", "1.safetensors"}


def test_weight_norm_is_no_state() -> None:
    found = modules({"m.conv.parametrizations.weight.original0": ("F32", (1, 1, 8))})
    assert list(found) == ["m.conv.parametrizations.weight"]


def test_leaked_quantizers_belong_to_the_module() -> None:
    tensors = nvfp4(f"{E}.0.w1") | nvfp4(f"{E}.1.w1")
    tensors |= {f"{E}.1.w1.weight_quantizer._amax": ONE, f"{E}.1.w1.input_quantizer.0._amax": ONE}
    tensors[f"{E}.w13_weight_quantizer._double_scale"] = ("F32", (2,))
    found = modules(tensors)
    assert found[f"{E}.0.w1"].experts == (0,)
    assert found[f"{E}.1.w1"].scheme == StoredScheme(
        "nvfp4", "quantized", extra=("input_quantizer.0._amax", "weight_quantizer._amax")
    )
    assert (found[E].scheme.kind, found[E].scheme.extra) == ("odd", ("w13_weight_quantizer._double_scale",))
    assert {tensor.name for module in found.values() for tensor in tensors_of(module.raw)} == set(tensors)


# --- the corpus -------------------------------------------------------------------------------------------------------


def declared(corpus: Any, case: Mapping[str, Any]) -> Iterable[tuple[str, str, tuple[int, ...]]]:
    """Module, scheme and shape of each whole row of a case."""
    for row in case["tensors"]:
        if "scheme" in row and "without" not in row:
            for name in corpus.expand(row["module"]):
                yield name, row["scheme"], tuple(row["shape"])


def by_name(found: Iterable[StoredModule]) -> dict[str, StoredModule]:
    named: dict[str, StoredModule] = {}
    for module in found:
        head, _, rest = module.name.partition(".experts.")
        projection = rest.partition(".")[2]
        named |= {f"{head}.experts.{expert}.{projection}": module for expert in module.experts}
        named.setdefault(module.name, module)
    return named


@pytest.mark.skipif(not CASES, reason="the corpus is not at hand")
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SHARED / "corpus"))
    corpus = __import__("forge")
    case = json.loads(path.read_text("utf-8"))
    read = read_local(corpus.forge(case, tmp_path / "m"))
    found = by_name(stored_modules(read))
    wrong = {
        name: (scheme, shape, found.get(name))
        for name, scheme, shape in declared(corpus, case)
        if name not in found or (found[name].scheme.name, found[name].shape) != (scheme, shape)
    }
    assert not wrong
    tensors, _ = corpus.tensors_of(case)
    assert read.tensor_count == len(tensors)
    assert {tensor.name for module in read.modules.values() for tensor in tensors_of(module)} == set(tensors)


def test_the_checkpoint_of_the_benchmark(tmp_path: Path) -> None:
    count = forge(tmp_path, shards=7, layers=5, experts=12)
    read = read_local(tmp_path)
    assert (read.tensor_count, len(read.shards), read.index) == (count, 7, Index("model.safetensors.index.json"))
    assert any(module.shards for module in read.modules.values())
    found = {module.name: module for module in stored_modules(read)}
    assert found["model.layers.3.mlp.experts.0.up_proj"].experts == tuple(range(12))
    assert found["model.layers.4.mlp.experts.0.down_proj"].scheme.name == "nvfp4"
    assert found["model.layers.5.eh_proj"].scheme.name == "bf16"
    assert {module.scheme.name for module in found.values()} == {"bf16", "nvfp4", "other"}


@pytest.mark.skipif(not REAL, reason="the exported checkpoints are not at hand")
@pytest.mark.parametrize("folder", REAL, ids=lambda path: path.name)
def test_what_exporters_wrote(folder: Path) -> None:
    schemes = {"modelopt-nvfp4": "nvfp4", "modelopt-fp8": "fp8", "llmc-fp8dynamic": "fp8-channel"}
    schemes |= {"llmc-nvfp4a16": "ct-nvfp4a16", "llmc-w4a16": "ct-w4a16"}
    wanted = next(scheme for start, scheme in schemes.items() if folder.name.startswith(start))
    read = read_local(folder)
    found = stored_modules(read)
    assert {module.scheme.name for module in found} == {"bf16", "other", wanted}
    assert not any(module.scheme.missing or module.scheme.extra for module in found)
    assert read.problems == read.duplicates == ()
    assert read.index in (None, Index("model.safetensors.index.json"))
