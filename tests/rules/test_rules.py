"""Each rule: a checkpoint that has the fault, and its near miss, which lacks it by one detail.

`seen in` names the public report, or the real load of vLLM 0.33.0 or SGLang 0.5.23, that a case is cut from.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from checkpoints import (
    SCHEMES,
    Model,
    build,
    deepseek_v3,
    gemma4_assistant,
    glm4_moe,
    glm5_next,
    qwen3_5,
    qwen3_moe,
    qwen3_next,
    rewritten,
    right_list,
)

from mtpfix.analysis import analyse
from mtpfix.model import Checkpoint, Finding, Report
from mtpfix.rules import BY_CODE

Make = Callable[[], Checkpoint]


@dataclass(frozen=True)
class Row:
    """A case. `modules`: some that the finding names; `after`: the status once the plan is applied."""

    rule: str
    name: str
    make: Make
    near: Make
    severity: str = "error"
    fix: str = "safe"
    part: str = "draft"
    modules: Sequence[str] = ()
    status: str = "fixable"
    near_status: str = "clean"


def both(made: Model, fmt: str, entries: Sequence[Any], **rest: Any) -> Checkpoint:
    """The same list in config.json and in the sidecar."""
    return build(made, fmt, list(entries), sidecar=list(entries), **rest)


def minus(entries: Sequence[str], *gone: str) -> list[str]:
    assert set(gone) <= set(entries)
    return [entry for entry in entries if entry not in gone]


def quantized(made: Model, scheme: str, *, but: str = "\0") -> dict[str, str]:
    """The draft stored in a scheme, modules with a text in their names left out."""
    return {name: scheme for name in made.draft if but not in name}


def deep(make: Callable[..., Model], layers: int, *stored: int) -> Model:
    """A model with many layers of which some are stored."""
    made = make(layers=layers)
    prefixes = tuple(f"layers.{number}." for number in range(layers) if number not in stored)

    def kept(shapes: Mapping[str, Any]) -> dict[str, Any]:
        return {name: shape for name, shape in shapes.items() if not any(part in name for part in prefixes)}

    return replace(made, body=kept(made.body), kept=kept(made.kept))


def without_expert(made: Model, number: int) -> Model:
    """A model that stores no expert of this number; its routers still choose it."""

    def kept(shapes: Mapping[str, Any]) -> dict[str, Any]:
        return {name: shape for name, shape in shapes.items() if f".experts.{number}." not in name}

    return replace(made, body=kept(made.body), draft=kept(made.draft), bare=kept(made.bare), kept=kept(made.kept))


NEXT, Q35, DENSE, GLM, DS = qwen3_next(), qwen3_5(), qwen3_5(dense=True), glm4_moe(), deepseek_v3()
GLM12, GLM45, GLM5 = deep(glm4_moe, 12, 0, 1), deep(glm4_moe, 45, 0, 4), deep(glm5_next, 45, 0, 4)
NEXT_NVFP4, Q35_NVFP4, GLM_NVFP4 = (right_list(made, "nvfp4") for made in (NEXT, Q35, GLM))
GLM_HEAD = "model.layers.2.head"  # as vLLM asks for it (engine facts, 7.18)
AMAX = {"model.layers.2.mlp.shared_experts.down_proj.weight_quantizer._amax": ("F32", ())}
KV = {"model.layers.2.self_attn.k_proj.k_scale": ("F32", ()), "model.layers.2.self_attn.v_proj.v_scale": ("F32", ())}
NEXT_QUANTIZED = [*minus(NEXT_NVFP4, "mtp.layers.0.*"), "mtp.layers.0.mlp.gate", "mtp.layers.0.mlp.shared_expert_gate"]
WRAPPED = [f"model.language_model.{entry}" if entry.startswith("mtp") else entry for entry in Q35_NVFP4]
FP8_LEAVES = right_list(DENSE, "fp8-block")
FP8_GLOBS = [*right_list(DENSE, "fp8-block", draft=False), "mtp.*"]
TARGET = functools.partial(right_list, draft=False)
MLA_PLAIN = {name: "bf16" for name in DS.body if ".self_attn." in name}
MLA_LISTED = sorted(MLA_PLAIN, key=lambda name: "q_a_proj" not in name)
UNLIKE = [
    *right_list(NEXT, "nvfp4", draft=False), "mtp.fc", "mtp.layers.0.self_attn.k_proj", "mtp.layers.0.self_attn.v_proj",
    "mtp.layers.0.self_attn.o_proj", "mtp.layers.0.mlp*",
]  # fmt: skip
DS_QUANTIZED = right_list(DS, "fp8-block", draft=False)


def types(*kinds: str) -> dict[str, Any]:
    """Qwen3.5's config with these types of layers."""
    return {"text_config": {**Q35.config["text_config"], "layer_types": list(kinds)}}


def without_index_for_draft(made: Model, fmt: str, entries: Sequence[str], *, listed: bool) -> Checkpoint:
    """The draft in a shard of its own, whose tensors the index names or leaves out."""

    def shard(name: str) -> str:
        return "model-00002-of-00002.safetensors" if name.startswith("mtp") else "model-00001-of-00002.safetensors"

    whole = both(made, fmt, entries, shard_of=shard)
    if listed:
        return whole
    names = [f"{module.name}.{cell.suffix}" for module in whole.modules.values() for cell in module.cells]
    index = {name: shard(name) for name in names if not name.startswith("mtp")}
    return both(made, fmt, entries, shard_of=shard, index=index)


ROWS = (
    # A
    Row(
        "MTP001",
        "one projection unlisted; seen in a-qwen3-next-nvfp4-fc",
        lambda: both(NEXT, "nvfp4", minus(NEXT_NVFP4, "mtp.fc")),
        lambda: both(NEXT, "nvfp4", NEXT_NVFP4),
        modules=["mtp.fc"],
    ),
    Row(
        "MTP001",
        "the whole draft unlisted under FP8, which loads without an error; seen in a-qwen3-5-fp8-block-unlisted",
        lambda: build(DENSE, "fp8-block", TARGET(DENSE, "fp8-block")),
        lambda: build(
            DENSE, "fp8-block", [*TARGET(DENSE, "fp8-block"), "mtp.fc"], stored=quantized(DENSE, "fp8-block")
        ),
        modules=["mtp.layers.0.self_attn.q_proj", "mtp.fc"],
    ),
    Row(
        "MTP001",
        "an entry for layer 1 is none for layer 12",
        lambda: both(GLM12, "nvfp4", [*TARGET(GLM12, "nvfp4"), "model.layers.1.mlp.gate"]),
        lambda: both(GLM12, "nvfp4", [*TARGET(GLM12, "nvfp4"), "model.layers.12.*"]),
        modules=["model.layers.12.self_attn.q_proj"],
    ),
    Row(
        "MTP001",
        "a router that vLLM's Qwen3-MoE asks for; seen in a-qwen3-moe-nvfp4-router",
        lambda: both(qwen3_moe(), "nvfp4", ["lm_head"]),
        lambda: both(qwen3_moe(), "nvfp4", TARGET(qwen3_moe(), "nvfp4")),
        part="target",
        modules=["model.layers.0.mlp.gate"],
    ),
    Row(
        "MTP001",
        "the target's router is not the draft's: vLLM before 0.17 asks for both",
        lambda: both(NEXT, "nvfp4", minus(NEXT_NVFP4, "mtp.layers.0.*"), stored=quantized(NEXT, "nvfp4")),
        lambda: both(NEXT, "nvfp4", [*minus(NEXT_NVFP4, "mtp.layers.0.*"), "mtp.layers.0.mlp.gate"],
                     stored=quantized(NEXT, "nvfp4")),
        modules=["mtp.layers.0.mlp.gate"],
    ),
    # B
    Row(
        "MTP002",
        "a wrapper prefix that no engine has; seen in b-qwen3-5-nvfp4-language-model-mtp",
        lambda: both(Q35, "nvfp4", WRAPPED),
        lambda: both(Q35, "nvfp4", Q35_NVFP4),
        modules=["mtp.layers.0.self_attn.q_proj"],
    ),
    Row(
        "MTP002",
        "a glob where whole names are compared; seen in b-qwen3-5-fp8-block-glob-mtp",
        lambda: build(DENSE, "fp8-block", FP8_GLOBS),
        lambda: build(DENSE, "fp8-block", FP8_LEAVES),
        modules=["mtp.fc", "mtp.layers.0.mlp.up_proj"],
    ),
    Row(
        "MTP002",
        "the checkpoint's layer where SGLang asks for model.decoder; seen in b-glm4-moe-fp8-decoder",
        lambda: both(GLM, "modelopt-fp8", right_list(GLM, "modelopt-fp8")),
        lambda: both(GLM, "modelopt-fp8", [*right_list(GLM, "modelopt-fp8"), "model.decoder.*"]),
        modules=["model.layers.2.self_attn.q_proj"],
    ),
    Row(
        "MTP002",
        "a regular expression in a list of globs; seen in b-qwen3-next-nvfp4-regex-dialect",
        lambda: both(Q35, "nvfp4", [*TARGET(Q35, "nvfp4"), "re:^mtp.*"]),
        lambda: both(Q35, "nvfp4", [*TARGET(Q35, "nvfp4"), "mtp.layers.0*", "mtp.fc"]),
        modules=["mtp.layers.0.mlp.experts.0.gate_proj"],
    ),
    # C
    Row(
        "MTP003",
        "only the sidecar was mended; seen in c-glm4-moe-nvfp4-files-disagree",
        lambda: build(GLM, "nvfp4", TARGET(GLM, "nvfp4"), sidecar=GLM_NVFP4),
        lambda: build(GLM, "nvfp4", GLM_NVFP4, sidecar=GLM_NVFP4),
        modules=["model.layers.2.self_attn.q_proj"],
    ),
    Row(
        "MTP003",
        "only config.json was mended, and TensorRT-LLM reads the other file",
        lambda: build(GLM, "nvfp4", GLM_NVFP4, sidecar=TARGET(GLM, "nvfp4")),
        lambda: build(GLM, "nvfp4", GLM_NVFP4, sidecar=[*TARGET(GLM, "nvfp4"), "model.layers.2*"]),
        modules=["model.layers.2.self_attn.q_proj"],
    ),
    # D
    Row(
        "MTP004",
        "a star behind a digit; seen in d-glm5-next-nvfp4-layers-4-star",
        lambda: both(GLM5, "nvfp4", [*TARGET(GLM5, "nvfp4"), "model.language_model.layers.4*", "model.layers.4*"]),
        lambda: both(GLM5, "nvfp4", [*TARGET(GLM5, "nvfp4"), "model.language_model.layers.45*", "model.layers.45*"]),
        part="target",
        modules=["model.language_model.layers.4.mlp.experts.0.up_proj"],
    ),
    Row(
        "MTP004",
        "a regex without an end; seen in d-glm4-ct-w4a16-regex-layer1",
        lambda: build(GLM12, "ct-fp8", [*TARGET(GLM12, "ct-fp8"), "re:model.layers.1", "re:^model\\.decoder\\..*"]),
        lambda: build(GLM12, "ct-fp8",
                      [*TARGET(GLM12, "ct-fp8"), "re:model.layers.12", "re:^model\\.decoder\\..*"]),
        part="target",
        modules=["model.layers.1.self_attn.q_proj"],
    ),
    Row(
        "MTP004",
        "a top-level fragment; seen in d-glm4-moe-fp8-model-star",
        lambda: both(GLM, "modelopt-fp8", [*right_list(GLM, "modelopt-fp8"), "model.decoder.*", "model*"]),
        lambda: both(GLM, "modelopt-fp8", [*right_list(GLM, "modelopt-fp8"), "model.decoder.*", "model.decoder*"]),
        part="target",
        modules=["model.layers.0.self_attn.q_proj"],
    ),
    Row(
        "MTP004",
        "half of what an entry covers is quantized",
        lambda: both(Q35, "nvfp4", Q35_NVFP4, stored=quantized(Q35, "nvfp4", but="mlp")),
        lambda: both(Q35, "nvfp4", Q35_NVFP4),
        modules=["mtp.layers.0.self_attn.o_proj"],
    ),
    Row(
        "MTP004",
        "leaves of latent attention count for every layer in SGLang (engine facts, P5)",
        lambda: both(DS, "nvfp4", [*TARGET(DS, "nvfp4"), *right_list(DS, "fp8-block")[2:], GLM_HEAD]),
        lambda: both(DS, "nvfp4", right_list(DS, "nvfp4")),
        part="target",
        modules=["model.layers.0.self_attn.kv_b_proj"],
    ),
    # E
    Row(
        "MTP005",
        "the draft is listed and stored quantized; seen in e-qwen3-next-ct-w4a16-ignored-but-packed",
        lambda: build(Q35, "ct-w4a16", [*TARGET(Q35, "ct-w4a16"), "re:^mtp.*"], stored=quantized(Q35, "ct-w4a16")),
        lambda: build(Q35, "ct-w4a16", [*TARGET(Q35, "ct-w4a16"), "re:^mtp.*"]),
        modules=["mtp.layers.0.self_attn.q_proj"],
    ),
    Row(
        "MTP005",
        "every projection listed by name; seen in e-qwen3-5-fp8-block-mtp-listed",
        lambda: build(DENSE, "fp8-block", FP8_LEAVES, stored=quantized(DENSE, "fp8-block")),
        lambda: build(DENSE, "fp8-block", FP8_LEAVES),
        modules=["mtp.layers.0.mlp.down_proj"],
    ),
    Row(
        "MTP005",
        "the head is listed and packed; seen in e-qwen3-5-nvfp4-head-listed",
        lambda: both(Q35, "nvfp4", Q35_NVFP4, stored={"lm_head": "nvfp4"}),
        lambda: both(Q35, "nvfp4", Q35_NVFP4),
        part="target",
        modules=["lm_head"],
    ),
    # F
    Row(
        "MTP006",
        "a count and no tensors; seen in f-qwen3-5-nvfp4-mtp-missing",
        lambda: both(Q35.without_draft(), "nvfp4", TARGET(Q35, "nvfp4")),
        lambda: both(qwen3_5(drafts=0), "nvfp4", TARGET(Q35, "nvfp4")),
        fix="unsafe",
        status="not-fixable",
    ),
    Row(
        "MTP006",
        "without any quantization; seen in f-qwen3-5-flat-pruned",
        lambda: build(NEXT.without_draft()),
        lambda: build(qwen3_next(drafts=0)),
        fix="unsafe",
        status="not-fixable",
    ),
    # G
    Row(
        "MTP007",
        "a projection packed that its family keeps in full precision; seen in g-qwen3-5-nvfp4-fc-packed",
        lambda: both(Q35, "nvfp4", minus(Q35_NVFP4, "mtp.fc"), stored={"mtp.fc": "nvfp4"}),
        lambda: both(Q35, "nvfp4", Q35_NVFP4),
        fix="none",
        modules=["mtp.fc"],
        status="not-fixable",
    ),
    Row(
        "MTP007",
        "a quantizer's inner state leaked; seen in g-glm4-moe-nvfp4-leaked-quantizer-state",
        lambda: both(GLM, "nvfp4", GLM_NVFP4, extra=AMAX),
        lambda: both(GLM, "nvfp4", GLM_NVFP4, extra=KV),  # scales of the cache prove nothing
        fix="none",
        modules=["model.layers.2.mlp.shared_experts.down_proj"],
        status="not-fixable",
    ),
    Row(
        "MTP007",
        "a full-width weight beside the scales of a packed one; seen in g-qwen3-next-nvfp4-unpacked",
        lambda: both(Q35, "nvfp4", Q35_NVFP4, stored={
            "mtp.layers.0.self_attn.o_proj": {**SCHEMES["nvfp4"](128, 128), "weight": ("BF16", (128, 128))}}),
        lambda: both(Q35, "nvfp4", Q35_NVFP4, stored={
            "mtp.layers.0.self_attn.o_proj": {"weight": ("BF16", (128, 128)), "bias": ("BF16", (128,))}}),
        fix="none",
        modules=["mtp.layers.0.self_attn.o_proj"],
        status="not-fixable",
    ),
    # H
    Row(
        "MTP008",
        "SGLang builds an NVFP4 draft plain whatever the list says (engine facts, 7.6)",
        lambda: both(GLM, "nvfp4", [*TARGET(GLM, "nvfp4"), *GLM.bare, GLM_HEAD], stored=quantized(GLM, "nvfp4")),
        lambda: both(GLM, "nvfp4", GLM_NVFP4),
        severity="warning",
        fix="none",
        modules=["model.layers.2.self_attn.q_proj"],
        status="clean",
    ),
    Row(
        "MTP008",
        "SGLang never honours `dynamic` for experts (7.10); seen in h-qwen3-5-moe-gptq-dynamic",
        lambda: build(Q35, "gptq", [*TARGET(Q35, "gptq"), r"-:.*mtp.*", r"-:.*linear_attn.*"]),
        lambda: build(DENSE, "gptq", [*TARGET(DENSE, "gptq"), r"-:.*mtp.*", r"-:.*linear_attn.*"]),
        severity="warning",
        fix="none",
        modules=["mtp.layers.0.mlp.experts.0.gate_proj"],
        status="clean",
    ),
    # I
    Row(
        "MTP009",
        "MXFP4 experts under NVFP4; seen in i-deepseek-v4-nvfp4-mtp-mxfp4",
        lambda: both(NEXT, "nvfp4", NEXT_QUANTIZED, stored={
            name: "mxfp4" if ".experts." in name else "nvfp4" for name in NEXT.draft}),
        lambda: both(NEXT, "nvfp4", NEXT_QUANTIZED, stored=quantized(NEXT, "nvfp4")),
        fix="none",
        modules=["mtp.layers.0.mlp.experts.0.gate_proj"],
        status="not-fixable",
    ),
    # J
    Row(
        "MTP010",
        "one of two fused projections listed; seen in j-deepseek-r1-nvfp4-q-a",
        lambda: both(DS, "nvfp4", [*right_list(DS, "nvfp4"), *(name for name in MLA_LISTED if "q_a_proj" not in name)],
                     stored=MLA_PLAIN),
        lambda: both(DS, "nvfp4", [*right_list(DS, "nvfp4"), *MLA_LISTED], stored=MLA_PLAIN),
        part="target",
        modules=["model.layers.0.self_attn.q_a_proj", "model.layers.0.self_attn.kv_a_proj_with_mqa"],
    ),
    Row(
        "MTP010",
        "one shard of three listed, all stored quantized",
        lambda: build(Q35, "ct-w4a16", [*right_list(Q35, "ct-w4a16"), "model.language_model.layers.1.self_attn.q_proj",
                                        "language_model.model.layers.1.self_attn.q_proj"]),
        lambda: build(
            Q35, "ct-w4a16", [*right_list(Q35, "ct-w4a16"), "model.language_model.layers.9.self_attn.q_proj"]
        ),
        part="target",
        modules=["model.language_model.layers.1.self_attn.q_proj"],
    ),
    Row(
        "MTP010",
        "shards stored unlike; seen in j-qwen3-next-nvfp4-unlike-shards",
        lambda: both(NEXT, "nvfp4", UNLIKE, stored={"mtp.layers.0.self_attn.q_proj": "nvfp4"}),
        lambda: both(NEXT, "nvfp4", [*UNLIKE, "mtp.layers.0.self_attn.q_proj"]),
        fix="none",
        modules=["mtp.layers.0.self_attn.q_proj"],
        status="not-fixable",
    ),
    # K
    Row(
        "MTP011",
        "the index leaves the draft out; seen in k-qwen3-5-nvfp4-index-omits-mtp",
        lambda: without_index_for_draft(Q35, "nvfp4", Q35_NVFP4, listed=False),
        lambda: without_index_for_draft(Q35, "nvfp4", Q35_NVFP4, listed=True),
        fix="unsafe",
        part="target",
        status="not-fixable",
    ),
    # L
    Row(
        "MTP012",
        "a renamed scale; seen in l-deepseek-v3-fp8-block-scale-renamed",
        lambda: build(DS, "fp8-block", DS_QUANTIZED, stored=quantized(DS, "fp8-block-ct")),
        lambda: build(DS, "fp8-block", DS_QUANTIZED, stored=quantized(DS, "fp8-block")),
        fix="unsafe",
        modules=["model.layers.2.mlp.experts.0.gate_proj"],
        status="not-fixable",
    ),
    Row(
        "MTP012",
        "a head without input_scale; seen in l-qwen3-5-nvfp4-head-no-input-scale",
        lambda: both(Q35, "nvfp4", minus(Q35_NVFP4, "lm_head"), stored={"lm_head": "nvfp4-w4a16"}),
        lambda: both(Q35, "nvfp4", minus(Q35_NVFP4, "lm_head"), stored={"lm_head": "nvfp4"}),
        fix="none",
        part="target",
        modules=["lm_head"],
        status="not-fixable",
    ),
    # M
    Row(
        "MTP013",
        "two declared, one stored; seen in m-deepseek-v3-fp8-two-layers-declared",
        lambda: both(GLM, "nvfp4", GLM_NVFP4, changes={"num_nextn_predict_layers": 2}),
        lambda: both(GLM, "nvfp4", GLM_NVFP4, changes={"num_nextn_predict_layers": 1}),
        fix="unsafe",
        status="not-fixable",
    ),
    Row(
        "MTP013",
        "a layer called full attention stores linear attention; vLLM 0.33.0 fails on a CPU, SGLang 0.5.23 loads it",
        lambda: both(Q35, "nvfp4", Q35_NVFP4, changes=types("full_attention", "full_attention")),
        lambda: both(Q35, "nvfp4", Q35_NVFP4, changes=types("linear_attention", "full_attention")),
        fix="unsafe",
        part="target",
        status="not-fixable",
    ),
    Row(
        "MTP013",
        "a type too many: the draft layer's; ValueError in vLLM 0.33.0 on a CPU",
        lambda: both(Q35, "nvfp4", Q35_NVFP4, changes=types("linear_attention", "full_attention", "full_attention")),
        lambda: both(Q35, "nvfp4", Q35_NVFP4, changes=types("sliding_attention", "full_attention", "full_attention")),
        fix="unsafe",
        part="target",
        status="not-fixable",
    ),
    Row(
        "MTP013",
        "an expert that is counted is stored in no layer; seen in y-ds-ctnv-attn-plain-experts-lost",
        lambda: both(without_expert(GLM, 1), "nvfp4", GLM_NVFP4),
        lambda: both(GLM, "nvfp4", GLM_NVFP4),
        fix="none",
        modules=["model.layers.2.mlp.experts.1.down_proj"],
        status="not-fixable",
    ),
    # N
    Row(
        "MTP014",
        "a draft of its own that says nothing",
        lambda: build(gemma4_assistant()),
        lambda: both(
            gemma4_assistant(),
            "nvfp4",
            ["lm_head", "model.embed_tokens", "pre_projection", "post_projection"],
            stored=dict.fromkeys(gemma4_assistant().draft, "nvfp4"),
        ),
        severity="note",
        fix="none",
        status="clean",
    ),
    # without a letter
    Row(
        "MTP015",
        "SGLang's drafter asks as model.layers.0, which the target needs (7.16)",
        lambda: both(NEXT, "modelopt-fp8", right_list(NEXT, "modelopt-fp8")),
        lambda: both(Q35, "modelopt-fp8", right_list(Q35, "modelopt-fp8")),
        severity="warning",
        fix="none",
        modules=["mtp.layers.0.self_attn.q_proj"],
        status="clean",
    ),
    Row(
        "MTP016",
        "a stray dot; seen in b-qwen3-moe-nvfp4-stray-dot",
        lambda: both(qwen3_moe(), "nvfp4", ["lm_head", *(f"model.layers.{layer}.mlp.gate." for layer in range(2))]),
        lambda: both(qwen3_moe(), "nvfp4", ["lm_head", *(f"model.layers.{layer}.mlp.gate" for layer in range(2))]),
        part="target",
        modules=["model.layers.0.mlp.gate"],
    ),
    Row(
        "MTP016",
        "an empty component; seen in b-nemotron-h-nvfp4-stray-dot",
        lambda: both(Q35, "nvfp4", [*TARGET(Q35, "nvfp4"), "mtp.fc", "mtp..layers.0.*"]),
        lambda: both(Q35, "nvfp4", [*TARGET(Q35, "nvfp4"), "mtp.fc", "mtp.layers.0.*"]),
        modules=["mtp.layers.0.mlp.experts.0.gate_proj"],
    ),
    Row(
        "MTP016",
        "null in the list stops both engines",
        lambda: both(Q35, "nvfp4", [*Q35_NVFP4, None]),
        lambda: both(Q35, "nvfp4", [*Q35_NVFP4, "none"]),
    ),
)  # fmt: skip


def ids(rows: Sequence[Row]) -> list[str]:
    return [f"{row.rule} {row.name}" for row in rows]


def found(report: Report, row: Row) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == row.rule and finding.part == row.part]


def told(report: Report) -> str:
    return "\n".join(f"{item.rule} {item.severity} {item.fix} {item.part} {item.message}" for item in report.findings)


@pytest.mark.parametrize("row", ROWS, ids=ids(ROWS))
def test_the_fault_is_found(row: Row) -> None:
    report = analyse(row.make())
    hits = found(report, row)
    assert hits, told(report)
    assert {(finding.severity, finding.fix) for finding in hits} == {(row.severity, row.fix)}, told(report)
    assert set(row.modules) <= {name for finding in hits for name in finding.modules}, told(report)
    assert report.status == row.status, told(report)


@pytest.mark.parametrize("row", ROWS, ids=ids(ROWS))
def test_the_near_miss_is_not(row: Row) -> None:
    report = analyse(row.near())
    assert not [finding for finding in report.findings if finding.rule == row.rule], told(report)
    assert report.status == row.near_status, told(report)


FIXABLE = [row for row in ROWS if row.status == "fixable"]


@pytest.mark.parametrize("row", FIXABLE, ids=ids(FIXABLE))
def test_what_is_fixable_is_clean_after_the_plan(row: Row) -> None:
    checkpoint = row.make()
    plan = analyse(checkpoint).plan
    assert plan.edits
    report = analyse(rewritten(checkpoint, plan.after))
    assert report.status == "clean", told(report)
    assert not report.plan.edits


def test_an_entry_that_is_no_text_is_all_that_is_wrong_with_fused_modules_too() -> None:
    checkpoint = build(NEXT, "nvfp4", [*right_list(NEXT, "nvfp4"), None, 1])
    assert {finding.rule for finding in analyse(checkpoint).findings if finding.severity == "error"} == {"MTP016"}


def test_every_rule_has_a_row() -> None:
    assert {row.rule for row in ROWS} == set(BY_CODE)
