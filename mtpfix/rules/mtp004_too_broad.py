"""MTP004 exclusion-too-broad: an entry also covers modules that are stored quantized"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.rules.base import Context, Rule, by_state, evidence, finding, modules_of, plural

EXPLANATION = """\
An entry covers modules that are stored in full precision, and others that are stored quantized.
Why: common causes are a bare layer number (`model.layers.4` is a substring of `model.layers.45`), a trailing
star after a number, a regex that is anchored at its start only, and a top-level fragment such as `model*`.
In engines: the quantized modules are built in full precision: their packed weights or scales do not fit, or
the scales are dropped silently.
Fix: the entry is replaced by narrower ones that cover exactly what is stored in full precision. `mtpfix
apply` does that.
By hand: replace the entry by one that ends where the module's name ends: a dot after a number, `$` in a
regex.
Seen in: GLM-4.7 FP8 exports with the pattern `model*` (NVIDIA/Model-Optimizer#1630);
inclusionAI/Ling-3.1-flash, where `b_proj` also hits `q_b_proj` (discussion 5 of the repository).
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part and state (mended or not)."""
    for part, fixed, claims in by_state(context.claims.get("MTP004", ())):
        entries = ", ".join(sorted({repr(claim.entry) for claim in claims}))
        _, count = modules_of(claims)
        yield finding(
            "MTP004",
            claims,
            f"{entries} also covers {plural(count, 'module')} of the {part} that "
            f"{'is' if count == 1 else 'are'} stored quantized. {evidence(claims[0])}: {claims[0].mismatch.why}.",
            hint="narrow the entry: mtpfix apply" if fixed else "no narrower entry is safe in every engine",
            fix="safe" if fixed else "none",
        )


RULE = Rule(
    "MTP004",
    "exclusion-too-broad",
    "D",
    "error",
    "safe",
    "an entry also covers modules that are stored quantized",
    EXPLANATION,
    check,
)
