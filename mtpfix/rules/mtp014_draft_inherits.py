"""MTP014 draft-inherits: a separate draft without a quantization config inherits the target's"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding, Location
from mtpfix.rules.base import Context, Rule

EXPLANATION = """\
A draft that lives in a repository of its own says nothing about quantization.
Why: it is loaded with the target's method unless the engine is told otherwise: a BF16 draft beside an FP8
target is then built in FP8.
In engines: as with MTP001: a shape error, or weights that are cast and drafts that are rejected.
Fix: a flag at serving time, not an edit: for SGLang `--speculative-draft-model-quantization unquant`, for
vLLM the draft's own `quantization` in the speculative config.
By hand: there is nothing to edit; serve with the flag.
"""


def check(context: Context) -> Iterator[Finding]:
    """A note for a draft-only repository without any quantization config."""
    family = context.world.family
    if family is None or not family.separate or context.fragments():
        return
    yield Finding(
        rule="MTP014",
        severity="note",
        fix="none",
        message="this draft declares no quantization; beside a quantized target some engines build it quantized",
        hint="name the draft's quantization when you serve it (SGLang: --speculative-draft-model-quantization unquant)",
        locations=(Location("config.json", ""),),
    )


RULE = Rule(
    "MTP014",
    "draft-inherits",
    "N",
    "note",
    "none",
    "a separate draft without a quantization config inherits the target's",
    EXPLANATION,
    check,
)
