"""MTP005 excluded-but-quantized: declared plain, stored quantized"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.rules.base import Context, Rule, by_state, evidence, finding, modules_of, plural, stored_as

EXPLANATION = """\
An entry says that modules are in full precision, but their tensors are quantized: scales are stored beside
them, or the weights are packed.
Why: the module was quantized after all, or the entry was copied from another checkpoint.
In engines: full-precision parameters are built, and loading stops at the scales, or drops them.
Fix: the entry is removed where the engines can then load the modules as they are stored. `mtpfix apply` does
that.
By hand: remove the entry from every list, then run `mtpfix check` again: some heads and routers are never
built quantized.
Seen in: nvidia/Qwen3.6-35B-A3B-NVFP4, which lists `lm_head*` and stores it quantized
(vllm-project/vllm#45132); vllm-project/compressed-tensors#712.
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part and state (mended or not)."""
    for part, fixed, claims in by_state(context.claims.get("MTP005", ())):
        entries = ", ".join(sorted({repr(claim.entry) for claim in claims}))
        _, count = modules_of(claims)
        yield finding(
            "MTP005",
            claims,
            f"{plural(count, 'module')} of the {part} excluded by {entries}, but stored as {stored_as(claims)}. "
            f"{evidence(claims[0])}: {claims[0].mismatch.why}.",
            hint="remove the entry: mtpfix apply" if fixed else "store these modules in full precision, or re-export",
            fix="safe" if fixed else "none",
        )


RULE = Rule(
    "MTP005", "excluded-but-quantized", "E", "error", "safe", "declared plain, stored quantized", EXPLANATION, check
)
