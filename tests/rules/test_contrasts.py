"""What findings set against each other: how modules are stored, and what which releases build."""

from __future__ import annotations

from checkpoints import build, glm4_moe, qwen3_next

from mtpfix.analysis import analyse
from mtpfix.explaining import explain
from mtpfix.model import Checkpoint, Finding


def finding(checkpoint: Checkpoint, rule: str) -> Finding:
    (found,) = (item for item in analyse(checkpoint).findings if item.rule == rule)
    return found


def test_modules_stored_and_built_alike_stand_together_experts_one_by_one() -> None:
    found = finding(build(glm4_moe(2, 3), "nvfp4", ignore=["lm_head"]), "MTP001")
    assert sorted(name for one in found.contrasts for name in one.modules) == sorted(found.modules)
    assert {(one.stored, one.built) for one in found.contrasts} == {("bf16", "nvfp4")}
    assert any("model.layers.2.mlp.experts.2.up_proj" in one.modules for one in found.contrasts)


def test_a_contrast_is_what_explain_says_of_these_releases() -> None:
    checkpoint = build(qwen3_next(2, 2), "nvfp4", ignore=["lm_head", "*gate", "*linear_attn*", "mtp.layers.0*"])
    found = finding(checkpoint, "MTP001")
    (one,) = found.contrasts
    assert (one.stored, one.built, one.modules) == ("bf16", "nvfp4", ("mtp.fc",))
    rows = [row for row in explain(checkpoint, ["mtp.fc"], engines=["vllm"]).rows if row.part == "draft"]
    wrong = [release for row in rows if row.decision == "quantized" for release in row.releases]
    # vllm-0.25.0: the drafter builds mtp.fc in full precision.
    assert one.engines == ("vllm<0.25.0",)
    assert wrong[-1] == "0.24.0"


def test_releases_that_build_other_modules_stand_apart() -> None:
    checkpoint = build(
        glm4_moe(2, 2),
        "nvfp4",
        ignore=["lm_head", "*mlp.gate", "model.layers.2.*"],
        stored={"model.layers.2.eh_proj": "nvfp4", "model.layers.1.self_attn.o_proj": "bf16"},
    )
    for found in analyse(checkpoint, scope="all").findings:
        for one in found.contrasts:
            for name in one.modules:
                rows = explain(checkpoint, [name]).rows
                assert {row.stored for row in rows} == {one.stored}
                assert one.built in {row.scheme if row.decision == "quantized" else row.decision for row in rows}
