"""MTP012 scales-missing: a scale that the engine needs is absent or misnamed"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.rules.base import Context, Rule, by_part, evidence, finding, modules_of, plural

EXPLANATION = """\
A module is stored quantized, but a scale tensor that its scheme needs is not there, or carries the name of
another scheme (`weight_scale` against `weight_scale_inv`). Loading stops on the unknown name, or goes on with a
scale that was never written.
Metadata cannot supply a number. Where only the name is wrong, the name in the shard's header can be mended;
otherwise the module has to be exported again.
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part."""
    for part, claims in by_part(context.claims.get("MTP012", ())).items():
        _, count = modules_of(claims)
        yield finding(
            "MTP012",
            claims,
            f"{plural(count, 'module')} of the {part} without a scale that the engine reads. {evidence(claims[0])}: "
            f"{claims[0].mismatch.why}.",
            hint="rename the scale in the shard's header where only its name is wrong, else export the module again",
        )


RULE = Rule(
    "MTP012",
    "scales-missing",
    "L",
    "error",
    "none",
    "a scale that the engine needs is absent or misnamed",
    EXPLANATION,
    check,
)
