"""Experts in one tensor for all of them: which loaders take such a stack, from the engines' code and from real loads.

Loads of vLLM 0.33.0 and SGLang 0.5.23 on a CPU; older releases by their `load_weights`. Glm4MoeLiteMTP raises
(vllm-0.33.0 glm4_moe_lite_mtp.py:447), as all do that look up every name; Bailing's loaders and most of SGLang's pass
over a name without a parameter; RoutedExperts.load_weights (vllm-0.25.0 routed_experts.py:869) and SGLang's
_load_fused_expert_tensor (sglang-0.5.20 deepseek_weight_loader.py:150) take gate and up in one, and not apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from checkpoints import MODELS, H, Model, Tensors, build, rewritten, right_list
from recorded import MAKERS, recorded

from mtpfix.analysis import analyse
from mtpfix.decisions import judges
from mtpfix.engines.registry import ENGINES
from mtpfix.model import Checkpoint, Part, VerdictKind
from mtpfix.symptoms import symptom_of
from mtpfix.verdicts import faults_of
from mtpfix.world import world_of

RAISES = {"0.12.0": "fails", "0.25.1": "fails", "0.33.0": "fails"}
SINCE_25 = {"0.24.0": "fails", "0.25.0": "loads", "0.33.0": "loads"}
SINCE_26 = {"0.12.0": "fails", "0.25.1": "fails", "0.26.0": "loads", "0.33.0": "loads"}
RELEASES = ("0.5.19", "0.5.20")  # before and after SGLang's DeepSeek loader takes stacks
DEEPSEEK = {"0.5.19": "degrades", "0.5.20": "loads", "0.5.23": "loads"}
PARTS: tuple[Part, ...] = ("target", "draft")
SKIPS = {"0.5.9": "degrades", "0.5.23": "degrades"}
Found = Mapping[str, str]
VLLM: tuple[tuple[str, Part, Found], ...] = (
    ("deepseek_v3", "target", RAISES),
    ("deepseek_v3", "draft", RAISES),
    ("deepseek_v32", "target", RAISES),
    ("deepseek_v32", "draft", RAISES),
    ("glm_moe_dsa", "target", {"0.16.0": "fails", "0.33.0": "fails"}),
    ("glm_moe_dsa", "draft", {"0.16.0": "fails", "0.33.0": "fails"}),
    ("glm4_moe_lite", "target", {"0.16.0": "fails", "0.33.0": "fails"}),
    ("glm4_moe_lite", "draft", {"0.16.0": "fails", "0.33.0": "fails"}),
    ("glm5_next", "target", {"0.31.0": "fails", "0.33.0": "fails"}),
    ("glm5_next", "draft", {"0.30.0": "fails", "0.33.0": "fails"}),
    ("hy_v3", "target", {"0.20.2": "fails", "0.33.0": "fails"}),
    ("hy_v3", "draft", {"0.20.2": "fails", "0.33.0": "fails"}),
    ("longcat_flash", "target", {"0.33.0": "fails"}),
    ("dots3_note", "target", {"0.28.0": "fails", "0.33.0": "fails"}),
    ("glm4_moe", "target", SINCE_26),
    ("glm4_moe", "draft", RAISES),
    ("pangu_ultra_moe", "target", SINCE_26),
    ("pangu_ultra_moe", "draft", RAISES),
    ("ernie4_5_moe", "target", SINCE_26),
    ("exaone_moe", "target", SINCE_25),
    ("qwen3_next", "draft", {"0.12.0": "fails", **SINCE_25}),
    ("qwen3_next", "target", {"0.12.0": "fails", "0.13.0": "degrades", "0.24.0": "degrades", "0.25.0": "loads"}),
    ("qwen3_moe", "target", {"0.17.1": "fails", "0.18.0": "degrades", "0.24.0": "degrades", "0.25.0": "loads"}),
    ("qwen3_5", "target", {"0.17.0": "loads", "0.33.0": "loads"}),
    ("qwen3_5", "draft", {"0.17.0": "loads", "0.33.0": "loads"}),
    ("intern_s2_preview", "draft", {"0.33.0": "loads"}),
    ("qwen4_exp", "target", {"0.29.0": "loads", "0.33.0": "loads"}),
    ("qwen4_exp", "draft", {"0.30.0": "loads", "0.33.0": "loads"}),
    ("hy_v4", "target", {"0.29.0": "loads", "0.33.0": "loads"}),
    ("hy_v4", "draft", {"0.29.0": "loads", "0.33.0": "loads"}),
    ("bailing", "target", {"0.18.1": "degrades", "0.33.0": "degrades"}),
    ("bailing", "draft", {"0.25.0": "degrades", "0.33.0": "degrades"}),
    ("mimo_v2", "target", {"0.22.1": "degrades", "0.33.0": "degrades"}),
)
SGLANG: tuple[tuple[str, Part, Found], ...] = (
    *((name, part, DEEPSEEK) for name in ("deepseek_v3", "deepseek_v32", "glm_moe_dsa") for part in PARTS),
    *((name, part, {"0.5.21": "loads"}) for name in ("gigachat3_5", "hy_v4") for part in PARTS),
    *((name, part, SKIPS) for name in ("glm4_moe", "bailing") for part in PARTS),
    ("glm4_moe_lite", "draft", {"0.5.13": "degrades", "0.5.23": "degrades"}),
    ("hy_v3", "target", {"0.5.12": "degrades", "0.5.23": "degrades"}),
    ("hy_v3", "draft", {"0.5.12": "degrades", "0.5.23": "degrades"}),
    ("glm5_next", "target", {"0.5.20": "degrades", "0.5.23": "degrades"}),
    ("glm5_next", "draft", {"0.5.20": "degrades", "0.5.23": "degrades"}),
    ("dots3_note", "target", {"0.5.19": "degrades", "0.5.23": "degrades"}),
    *((name, "target", SKIPS) for name in ("qwen3_moe", "exaone_moe", "longcat_flash")),
    ("mimo_v2", "target", {"0.5.12": "degrades", "0.5.23": "degrades"}),
    ("qwen3_next", "target", {"0.5.9": "fails", "0.5.23": "fails"}),
    ("qwen3_next", "draft", {"0.5.9": "fails", "0.5.23": "fails"}),
    ("ernie4_5_moe", "target", {"0.5.9": "fails", "0.5.23": "fails"}),
    ("qwen3_5", "target", {"0.5.9": "loads", "0.5.23": "loads"}),
    ("qwen3_5", "draft", {"0.5.9": "loads", "0.5.23": "loads"}),
    ("qwen4_exp", "draft", {"0.5.20": "loads", "0.5.23": "loads"}),
)  # fmt: skip
CASES = [("vllm", *case) for case in VLLM] + [("sglang", *case) for case in SGLANG]
TOGETHER: Tensors = {"gate_up_proj": ("BF16", (2, 2 * H, H)), "down_proj": ("BF16", (2, H, H))}
APART: Tensors = dict.fromkeys(("gate_proj", "up_proj", "down_proj"), ("BF16", (2, H, H)))
NO_GATE: Tensors = dict.fromkeys(("up_proj", "down_proj"), ("BF16", (2, H, H)))


def model(family: str) -> Model:
    return MAKERS[family]() if family in MAKERS else recorded(family)


def stacked(
    made: Model, part: Part, tensors: Tensors, fmt: str = "", *, listed: bool = True, rest: str = ""
) -> Checkpoint:
    """A model whose experts, in one part, are stacks.

    listed  whether the list names the draft
    rest    the scheme in which the draft's other linears are stored, which are then not listed; "": plain
    """
    names = made.draft if part == "draft" else made.body
    single = {name for name in names if ".experts." in name}
    holders = dict.fromkeys(sorted({name.partition(".experts.")[0] + ".experts" for name in single}), (H, H + 1))
    assert holders
    left = {name: shape for name, shape in names.items() if name not in single}
    made = replace(made, draft=left | holders) if part == "draft" else replace(made, body=left | holders)
    plain = replace(made, draft={}) if rest else made
    ignore = right_list(plain, fmt, draft=listed) if fmt else ()
    stored = dict.fromkeys(left, rest) if rest else {}
    return build(made, fmt, ignore, stored={**stored, **dict.fromkeys(holders, tensors)})


def verdict(checkpoint: Checkpoint, engine: str, part: Part, release: str) -> VerdictKind:
    rows = analyse(checkpoint, engines=[f"{engine}=={release}"]).engines
    (found,) = [row for row in rows if row.engine == engine and row.part == part and release in row.releases]
    return found.verdict


@pytest.mark.parametrize(("engine", "family", "part", "found"), CASES)
def test_what_a_loader_makes_of_a_stack(engine: str, family: str, part: Part, found: Found) -> None:
    made = model(family)
    alone, together = build(made), stacked(made, part, TOGETHER)
    assert {release: verdict(together, engine, part, release) for release in found} == found
    assert {verdict(alone, engine, part, release) for release in found} == {"loads"}


@pytest.mark.parametrize(("engine", "family", "part", "found"), CASES)
def test_gate_and_up_in_stacks_of_their_own_are_taken_by_none(
    engine: str, family: str, part: Part, found: Found
) -> None:
    apart = stacked(model(family), part, APART)
    wanted = {release: "degrades" if kind == "loads" else kind for release, kind in found.items()}
    assert {release: verdict(apart, engine, part, release) for release in found} == wanted


NAMED_WEIGHT: tuple[tuple[str, str, Part, Found], ...] = (
    ("vllm", "glm4_moe", "target", {"0.25.1": "fails", "0.26.0": "fails", "0.33.0": "fails"}),
    ("vllm", "glm4_moe", "draft", {"0.33.0": "fails"}),
    ("vllm", "qwen3_5", "target", {"0.17.0": "fails", "0.33.0": "fails"}),
    ("vllm", "qwen3_next", "draft", {"0.33.0": "fails"}),
    ("vllm", "qwen3_next", "target", {"0.24.0": "degrades", "0.25.0": "fails"}),
    ("vllm", "qwen3_moe", "target", {"0.24.0": "degrades", "0.25.0": "fails"}),
    ("vllm", "exaone_moe", "target", {"0.25.0": "fails"}),
    ("vllm", "hy_v4", "target", {"0.29.0": "fails", "0.33.0": "fails"}),
    ("vllm", "hy_v4", "draft", {"0.29.0": "degrades", "0.33.0": "degrades"}),
    ("sglang", "qwen3_5", "target", {"0.5.9": "fails", "0.5.12": "degrades", "0.5.23": "degrades"}),
    ("sglang", "qwen3_5", "draft", {"0.5.9": "fails", "0.5.23": "fails"}),
    ("sglang", "qwen4_exp", "draft", {"0.5.21": "fails"}),
    ("sglang", "deepseek_v32", "target", {"0.5.19": "degrades", "0.5.20": "degrades", "0.5.23": "degrades"}),
    ("sglang", "deepseek_v32", "draft", {"0.5.23": "degrades"}),
)


@pytest.mark.parametrize(("engine", "family", "part", "found"), NAMED_WEIGHT)
def test_a_stack_called_weight_is_taken_by_none(engine: str, family: str, part: Part, found: Found) -> None:
    """`experts.down_proj.weight`: vllm-0.33.0 routed_experts.py:1050 looks for `w2_weight.weight`; seen in loads."""
    made = model(family)
    named = stacked(made, part, {f"{name}.weight": cell for name, cell in TOGETHER.items()})
    assert {release: verdict(named, engine, part, release) for release in found} == found


QUANTIZED: tuple[tuple[str, str, Part, Mapping[str, tuple[str, str]]], ...] = (
    # ... with the scales of their blocks called `_scale_inv`, and called `_scale`
    ("vllm", "glm4_moe", "target", {"0.33.0": ("loads", "fails")}),
    ("vllm", "deepseek_v3", "target", {"0.33.0": ("fails", "fails")}),
    ("vllm", "qwen3_5", "draft", {"0.33.0": ("loads", "fails")}),
    ("vllm", "hy_v4", "draft", {"0.29.0": ("loads", "loads"), "0.33.0": ("loads", "loads")}),
    ("sglang", "deepseek_v3", "target", {"0.5.19": ("degrades", "degrades"), "0.5.20": ("degrades", "loads")}),
    ("sglang", "deepseek_v3", "draft", {"0.5.23": ("degrades", "loads")}),
    ("sglang", "glm4_moe", "target", {"0.5.23": ("degrades", "degrades")}),
    ("sglang", "qwen3_5", "draft", {"0.5.9": ("loads", "fails"), "0.5.23": ("loads", "fails")}),
)


@pytest.mark.parametrize(("engine", "family", "part", "found"), QUANTIZED)
def test_stacks_of_fp8(engine: str, family: str, part: Part, found: Mapping[str, tuple[str, str]]) -> None:
    """vllm-0.33.0 hy_v4/nvidia/mtp.py:109 and sglang-0.5.23 deepseek_weight_loader.py:182 know the names of scales."""
    rest = "fp8-block" if part == "draft" else ""
    either = [stacked(model(family), part, blocks(name), "fp8-block", rest=rest) for name in ("scale_inv", "scale")]
    got = {release: tuple(verdict(one, engine, part, release) for one in either) for release in found}
    assert got == found


def blocks(scale: str) -> Tensors:
    """Stacks in FP8, with scales of their blocks under this name."""
    return {
        "gate_up_proj": ("F8_E4M3", (2, 2 * H, H)), f"gate_up_proj_{scale}": ("F32", (2, 2 * H // 128, H // 128)),
        "down_proj": ("F8_E4M3", (2, H, H)), f"down_proj_{scale}": ("F32", (2, H // 128, H // 128)),
    }  # fmt: skip


def test_experts_without_a_gate() -> None:
    """`Fused gate/up mapping will be skipped` until vllm-0.31.0; NemotronHMTP passes over names it does not know."""
    made = recorded("nemotron_h")
    target, draft = stacked(made, "target", NO_GATE), stacked(made, "draft", NO_GATE)
    found = {"0.25.1": "fails", "0.26.0": "degrades", "0.31.0": "degrades", "0.32.0": "loads", "0.33.0": "loads"}
    assert {release: verdict(target, "vllm", "target", release) for release in found} == found
    assert verdict(draft, "vllm", "draft", "0.33.0") == "degrades"
    named = stacked(made, "target", {f"{name}.weight": cell for name, cell in NO_GATE.items()})
    assert {release: verdict(named, "vllm", "target", release) for release in ("0.31.0", "0.32.0")} == {
        "0.31.0": "degrades", "0.32.0": "fails",
    }  # fmt: skip
    assert verdict(draft, "sglang", "draft", "0.5.23") == verdict(target, "sglang", "target", "0.5.23") == "degrades"
    assert (
        verdict(build(made), "vllm", "draft", "0.33.0") == verdict(build(made), "sglang", "draft", "0.5.23") == "loads"
    )


def test_tensorrt_llm_was_read_for_qwen3_5_alone() -> None:
    """qwen3_5_weight_mapper.py handle_special_instance_module takes `gate_up_proj` of three dimensions."""
    known, unknown = (stacked(MODELS[name](), "draft", TOGETHER, "nvfp4") for name in ("qwen3_5", "glm4_moe"))
    assert verdict(known, "tensorrt-llm", "draft", "snapshot-3") == "loads"
    assert verdict(unknown, "tensorrt-llm", "draft", "snapshot-3") == "unknown"


def test_a_stack_that_no_loader_takes_is_the_engines_own_and_is_not_listed() -> None:
    made = recorded("glm4_moe_lite")
    checkpoint = stacked(made, "draft", TOGETHER, "nvfp4")
    report = analyse(checkpoint)
    stuck = [finding for finding in report.findings if finding.part == "draft"]
    assert {(finding.rule, finding.severity) for finding in stuck} == {("MTP008", "error")}
    assert {name.rpartition(".experts.")[2] for finding in stuck for name in finding.modules} == {
        "gate_up_proj", "down_proj",
    }  # fmt: skip
    assert report.status == "not-fixable"


def test_a_stack_that_one_engine_takes_is_listed_for_it() -> None:
    """sglang-0.5.20 loads DeepSeek's stacks; unlisted they are cast into FP8, and no scale is written."""
    unlisted = stacked(MODELS["deepseek_v3"](), "draft", TOGETHER, "fp8-block", listed=False)
    assert verdict(unlisted, "sglang", "draft", "0.5.23") != "loads"
    report = analyse(unlisted)
    assert report.status == "fixable"
    mended = rewritten(unlisted, report.plan.after)
    assert verdict(mended, "sglang", "draft", "0.5.23") == "loads"
    assert verdict(mended, "vllm", "draft", "0.33.0") == "fails"


def test_releases_that_stacks_alone_tell_apart_are_one_where_none_is_stored() -> None:
    """The solver tries one list once for judges that answer alike and have the same faults."""

    def faults(checkpoint: Checkpoint) -> set[tuple[int, ...]]:
        world = world_of(checkpoint)
        drafts = [judge for judge in judges(world, [ENGINES["sglang"]]) if judge.part == "draft"]
        return {tuple(map(id, faults_of(world, judge))) for judge in drafts if judge.profile.first in RELEASES}

    made = MODELS["deepseek_v3"]()
    assert len(faults(build(made, "nvfp4", right_list(made, "nvfp4")))) == 1
    assert len(faults(stacked(made, "draft", TOGETHER, "nvfp4"))) == 2


@pytest.mark.parametrize(
    "line",
    [
        "KeyError: 'model.layers.3.mtp_block.mlp.experts.down_proj'",
        "KeyError: 'layers.1.mlp.experts.gate_up_proj'",
        "KeyError: \"Parameter 'model.layers.1.mlp.experts.down_proj' not found in model.\"",
        "model.decoder.mlp.experts.gate_up_proj not found in params_dict.",
        "AttributeError: Layer mtp.layers.0.mlp.experts has no parameter 'w2_weight.weight' for checkpoint weight 'x'",
        "KeyError: 'model.layers.0.mlp.experts.w2_weight.weight'",
    ],
)
def test_the_words_lead_to_the_rule(line: str) -> None:
    found = symptom_of(line)
    assert found is not None
    assert found.rules == ("MTP008",)


def test_the_same_words_of_single_experts_lead_elsewhere() -> None:
    for line in (
        "KeyError: 'model.layers.3.mlp.experts.0.down_proj.weight'",
        "AttributeError: Layer mtp.layers.0.mlp.experts has no parameter 'w2_weight' for checkpoint weight 'x'",
        "KeyError: 'model.layers.0.mlp.experts.w2_weight'",
        "model.decoder.mlp.shared_experts.down_proj.weight not found in params_dict.",
    ):
        found = symptom_of(line)
        assert found is not None
        assert found.rules[0] != "MTP008"
