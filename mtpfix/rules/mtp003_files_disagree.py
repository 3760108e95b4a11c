"""MTP003 files-disagree: config.json and its sidecar decide differently"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.rules.base import Context, Rule, by_state, evidence, finding, list_locations, modules_of, plural

EXPLANATION = """\
config.json and hf_quant_config.json hold a list each, and the two decide differently for a module.
Why: vLLM and SGLang read config.json, TensorRT-LLM reads hf_quant_config.json first. One of the files lies
about the weights. Lists that are spelled differently and mean the same are no finding.
In engines: the checkpoint works in one engine and not in the other.
Fix: the file that contradicts the stored tensors gets the missing entries, or loses the wrong ones. `mtpfix
apply` does that.
By hand: compare both lists with the stored tensors (`mtpfix list CHECKPOINT`) and make both say what is
stored.
Seen in: Qwen3-Next NVFP4 uploads in which only one of the two files names the draft
(vllm-project/vllm#38832).
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part and state (mended or not): modules that one file covers and the other does not."""
    claims = [*context.claims.get("MTP003", ()), *context.sidecar]
    for part, fixed, mine in by_state(claims):
        _, count = modules_of(mine)
        yield finding(
            "MTP003",
            mine,
            f"config.json and hf_quant_config.json decide differently for {plural(count, 'module')} of the {part}. "
            f"{evidence(mine[0])}.",
            hint="bring the files into agreement with what is stored: mtpfix apply" if fixed else "",
            fix="safe" if fixed else "none",
            locations=list_locations(context),
        )


RULE = Rule(
    "MTP003",
    "files-disagree",
    "C",
    "error",
    "safe",
    "config.json and its sidecar decide differently",
    EXPLANATION,
    check,
)
