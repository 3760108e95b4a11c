"""MTP009 mixed-schemes: stored in another quantization scheme than declared"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.rules.base import Claim, Context, Rule, by_part, evidence, finding, modules_of, plural, stored_as, way_out
from mtpfix.verdicts import unwritten

EXPLANATION = """\
Modules are quantized, and the config says so, but in another scheme than the one that is stored: MXFP4
experts under an NVFP4 declaration, for instance.
Why: parts of the checkpoint come from different exports, or a native scheme was kept for the draft.
In engines: parameters and scales of the declared scheme are allocated; some scales are then never written, or
shapes do not fit.
Fix: only where the format can give a module a scheme of its own (MIXED_PRECISION, config groups), and the
engine honours it for this part. Else export the modules again in one scheme.
By hand: declare the scheme of each module in `quantized_layers` or in a config group, where the format has
them.
Seen in: DeepSeek-V4 NVFP4 with a native MXFP4 draft (vllm-project/vllm#43472).
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part: stored scheme, declared scheme, and the scales that stay unwritten."""
    for part, claims in by_part(context.claims.get("MTP009", ())).items():
        allocated = ", ".join(sorted({claim.mismatch.answer.scheme for claim in claims}))
        _, count = modules_of(claims)
        yield finding(
            "MTP009",
            claims,
            f"{plural(count, 'module')} of the {part} stored as {stored_as(claims)}, allocated as {allocated}. "
            f"{evidence(claims[0])}: {claims[0].mismatch.why}.{_unwritten(claims[0])}",
            hint=f"export the modules in the declared scheme; {way_out(context, part)}",
        )


def _unwritten(claim: Claim) -> str:
    """The scales that the engine allocates and the checkpoint does not hold, as a sentence; or ""."""
    names = unwritten(claim.mismatch.answer.scheme, claim.mismatch.row.unit.stored.scheme.name)
    return f" Read without ever being written: {', '.join(names)}." if names else ""


RULE = Rule(
    "MTP009",
    "mixed-schemes",
    "I",
    "error",
    "none",
    "stored in another quantization scheme than declared",
    EXPLANATION,
    check,
)
