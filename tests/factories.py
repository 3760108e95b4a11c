"""Hand-made values: what the analysis would say, without an analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtpfix.model import (
    Certificate,
    DecisionRow,
    Draft,
    Edit,
    EngineRow,
    Finding,
    Location,
    Part,
    Plan,
    Report,
    Source,
    VerdictKind,
)
from mtpfix.releases import modelled

LIST = "/quantization_config/ignore"


@dataclass(frozen=True)
class FakeRule:
    code: str
    name: str
    kind: str = "A"
    severity: str = "error"
    fix: str = "safe"
    summary: str = "a draft module is stored plain and no entry says so"
    explanation: str = "What it is.\n\nWhy it matters.\nFix: add an entry.\nBy hand: edit the file.\n"


@dataclass(frozen=True)
class FakeTensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: str
    stored: str
    declared: str


RULES = (
    FakeRule("MTP001", "draft-not-excluded"),
    FakeRule("MTP007", "misexported", "G", fix="none", summary="weights that no metadata can mend"),
    FakeRule("MTP008", "engine-cannot", "H", severity="warning", fix="none", summary="this release cannot"),
    FakeRule("MTP013", "count-wrong", "M", fix="unsafe", summary="a count contradicts the tensors"),
)


def engine_rows(
    engine: str,
    part: Part,
    *cuts: tuple[str, VerdictKind],
    reason: str = "",
    error: str = "",
    modules: tuple[str, ...] = (),
) -> tuple[EngineRow, ...]:
    """Profiles of an engine: each cut is the first release of one, and its verdict."""
    every = modelled(engine)
    starts = [every.index(first) for first, _ in cuts]
    out = []
    for start, end, (_, verdict) in zip(starts, [*starts[1:], len(every)], cuts, strict=True):
        told = verdict != "loads"
        out.append(
            EngineRow(
                engine,
                every[start],
                every[start:end],
                end == len(every),
                part,
                verdict,
                reason if told else "",
                modules if told else (),
                error if told else "",
            )
        )
    return tuple(out)


NEXT_MODULES = ("mtp.fc", "mtp.norm", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden")


def finding(**changes: Any) -> Finding:
    values: dict[str, Any] = {
        "rule": "MTP001",
        "severity": "error",
        "fix": "safe",
        "message": "4 modules of the draft are stored as bf16, and no entry covers them. mtp.fc: stored bf16 "
        "[2048 × 4096], vllm builds it nvfp4: full-width weights do not fit packed parameters.",
        "hint": "add the entries of the plan: mtpfix apply",
        "engines": ("vllm", "sglang>=0.5.9,<0.5.20"),
        "modules": NEXT_MODULES,
        "module_count": 4,
        "locations": (Location("config.json", LIST), Location("hf_quant_config.json", "/quantization/exclude_modules")),
    }
    return Finding(**{**values, **changes})


def plan(**changes: Any) -> Plan:
    before = b'{"quantization_config": {"ignore": ["lm_head", "mtp.layers.0*"]}}\n'
    after = b'{"quantization_config": {"ignore": ["lm_head", "mtp.layers.0*", "mtp.fc"]}}\n'
    values: dict[str, Any] = {
        "edits": (Edit("config.json", "add", f"{LIST}/-", "mtp.fc"),),
        "before": {"config.json": before},
        "after": {"config.json": after},
        "certificate": Certificate(49_340, 36_912, {"vllm 0.33.0": 1553, "sglang 0.5.23": 1553}, 0, 1, 0),
    }
    return Plan(**{**values, **changes})


def fixable(**changes: Any) -> Report:
    """Qwen3-Next NVFP4: `mtp.layers.0*` misses `mtp.fc`."""
    words = "full-width weights do not fit packed parameters"
    values: dict[str, Any] = {
        "source": Source("local", "models/Qwen3-Next-80B-A3B-Instruct-NVFP4"),
        "family": "qwen3-next",
        "family_reason": "architectures names Qwen3NextForCausalLM",
        "format": "modelopt",
        "schemes": {"nvfp4": 36_912, "bf16": 1_876},
        "tensors": 150_318,
        "shards": 10,
        "draft": Draft(1, 1, 1553, {"BF16": 1553}, 1549),
        "status": "fixable",
        "engines": (
            *engine_rows("vllm", "target", ("0.12.0", "loads"), ("0.25.0", "loads")),
            *engine_rows(
                "vllm",
                "draft",
                ("0.12.0", "fails"),
                ("0.25.0", "fails"),
                ("0.30.0", "loads"),
                ("0.32.0", "fails"),
                reason=words,
                error="AssertionError: Attempted to load weight (torch.Size([2048, 4096])) "
                "into parameter (torch.Size([2048, 2048]))",
                modules=NEXT_MODULES,
            ),
            *engine_rows("sglang", "target", ("0.5.9", "loads")),
            *engine_rows("sglang", "draft", ("0.5.9", "degrades"), reason="the scales stay unwritten"),
            *engine_rows("transformers", "target", ("5.24.0", "loads")),
            *engine_rows("transformers", "draft", ("5.24.0", "unsupported"), reason="transformers has no MTP"),
        ),
        "findings": (
            finding(
                rule="MTP008",
                severity="warning",
                fix="none",
                message="vLLM below 0.25 carries a wrong gate_up_proj packed mapping for this drafter.",
                hint="use vllm>=0.25",
                engines=("vllm<0.25",),
                modules=(),
                module_count=0,
                locations=(),
            ),
            finding(),
        ),
        "plan": plan(),
    }
    return Report(**{**values, **changes})


def clean(**changes: Any) -> Report:
    values: dict[str, Any] = {
        "status": "clean",
        "engines": (
            *engine_rows("vllm", "target", ("0.12.0", "loads")),
            *engine_rows("vllm", "draft", ("0.12.0", "loads")),
            *engine_rows("sglang", "target", ("0.5.9", "loads")),
            *engine_rows("sglang", "draft", ("0.5.9", "loads")),
        ),
        "findings": (),
        "plan": Plan(),
    }
    return fixable(**{**values, **changes})


def not_fixable(**changes: Any) -> Report:
    """Gemma-4 assistant NVFP4: projections stored packed."""
    values: dict[str, Any] = {
        "source": Source("local", "/data/gemma-4-assistant-NVFP4"),
        "family": "gemma4-assistant",
        "family_reason": "",
        "schemes": {"nvfp4": 40},
        "tensors": 180,
        "shards": 1,
        "draft": Draft(None, 1, 180, {"U8": 42, "F8_E4M3": 42, "F32": 84, "BF16": 12}, 54),
        "status": "not-fixable",
        "engines": engine_rows("vllm", "draft", ("0.12.0", "unsupported"), ("0.24.0", "fails"), reason="packed"),
        "findings": (
            finding(
                rule="MTP007",
                fix="none",
                message="pre_projection is stored as nvfp4 with shape 1024×768; this family keeps it in full "
                "precision, 1024×1536.",
                hint="export again with the projections left out of quantization",
                engines=("vllm>=0.24",),
                modules=("pre_projection", "post_projection"),
                module_count=2,
                locations=(),
            ),
            finding(
                rule="MTP013",
                fix="unsafe",
                severity="error",
                message="config.json declares 2 layers, 1 is stored.",
                hint="",
                engines=(),
                modules=tuple(f"model.layers.{layer}.{leaf}" for layer in range(3) for leaf in "abcdefgh"),
                module_count=24,
                locations=(Location("config.json", "/num_hidden_layers"),),
            ),
        ),
        "plan": Plan(held_back=("set num_hidden_layers to 1 in config.json",)),
        "notes": ("kv_cache_scheme was not looked at.",),
    }
    return fixable(**{**values, **changes})


def decision(**changes: Any) -> DecisionRow:
    values: dict[str, Any] = {
        "module": "mtp.fc",
        "part": "draft",
        "engine": "vllm",
        "version": "0.12.0",
        "releases": modelled("vllm"),
        "latest": True,
        "runtime_name": "mtp.fc",
        "decision": "quantized",
        "stored": "bf16",
        "rule": "no entry matches",
        "scheme": "nvfp4",
    }
    return DecisionRow(**{**values, **changes})


def decisions(experts: int = 4) -> tuple[DecisionRow, ...]:
    """Two profiles of vLLM and one of SGLang, for mtp.fc and a row of experts."""
    every = modelled("vllm")
    old, new = every[:20], every[20:]
    entry = {"decision": "plain", "scheme": "", "rule": "", "file": "config.json", "pointer": f"{LIST}/1"}
    entry["entry"] = "mtp.layers.0*"
    rows = [
        decision(releases=old, latest=False),
        decision(version=new[0], releases=new),
        decision(engine="sglang", version="0.5.9", releases=modelled("sglang"), runtime_name="model.fc"),
    ]
    for number in range(experts):
        for leaf in ("gate_proj", "up_proj", "down_proj"):
            name = f"mtp.layers.0.mlp.experts.{number}.{leaf}"
            asked = "mtp.layers.0.mlp.experts"
            rows += [
                decision(module=name, runtime_name=asked, releases=old, latest=False, **entry),
                decision(module=name, runtime_name=asked, version=new[0], releases=new, decision="error", rule="boom"),
                decision(module=name, engine="sglang", version="0.5.9", releases=modelled("sglang"), **entry),
            ]
    return tuple(rows)


def tensors() -> tuple[FakeTensor, ...]:
    shards = "model-00009-of-00010.safetensors", "model-00010-of-00010.safetensors"
    out = [FakeTensor("mtp.fc.weight", "BF16", (2048, 4096), shards[0], "bf16", "quantized")]
    for number in range(512):
        for leaf, shape in (("gate_proj", (512, 2048)), ("up_proj", (512, 2048)), ("down_proj", (2048, 512))):
            name = f"mtp.layers.0.mlp.experts.{number}.{leaf}.weight"
            out.append(FakeTensor(name, "BF16", shape, shards[1], "bf16", "plain"))
    out.append(FakeTensor("mtp.layers.0.scale", "F32", (), shards[1], "other", "plain"))
    return tuple(out)
