"""MTP001 draft-not-excluded: stored in full precision, and no entry says so"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.rules.base import Context, Rule, by_part, evidence, finding, list_locations, modules_of, plural, stored_as

EXPLANATION = """\
A module is stored in full precision, but no entry of the quantization config covers it. An engine that reads
the config allocates quantized parameters for it.
With packed formats (NVFP4, MXFP4, GPTQ, AWQ, W4A16) loading stops with a shape error or an unknown parameter
name. With FP8 and MXFP8 nothing stops: the weights are cast into float8, the scales stay unwritten, and every
draft token is rejected.
Fix: add entries for the modules, in every file and in every spelling that an engine asks for. `mtpfix apply`
does that.
By hand: add the names of the modules to the list that the finding points to, then run `mtpfix check` again.
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part, over all modules that the plan covers."""
    for part, claims in by_part(context.claims.get("MTP001", ())).items():
        _, count = modules_of(claims)
        yield finding(
            "MTP001",
            claims,
            f"{plural(count, 'module')} of the {part} stored as {stored_as(claims)}, and no entry covers "
            f"{'it' if count == 1 else 'them'}. {evidence(claims[0])}: {claims[0].mismatch.why}.",
            hint="add the entries of the plan: mtpfix apply",
            fix="safe",
            locations=list_locations(context),
        )


RULE = Rule(
    "MTP001",
    "draft-not-excluded",
    "A",
    "error",
    "safe",
    "stored in full precision, and no entry says so",
    EXPLANATION,
    check,
)
