"""MTP012 scales-missing: a scale that the engine needs is absent or misnamed"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding, Rename
from mtpfix.names import split_name
from mtpfix.rules.base import Claim, Context, Rule, by_part, evidence, finding, modules_of, plural

EXPLANATION = """\
A module is stored quantized, but a scale tensor that its scheme needs is not there, or carries the name of
another scheme (`weight_scale` against `weight_scale_inv`).
Why: the tensors were renamed or dropped between the export and the upload.
In engines: loading stops on the unknown name, or goes on with a scale that was never written.
Fix: metadata cannot supply a number. Where only the name is wrong (both names stand for what an FP8 block is
multiplied with; dtype and shape are what engines build), `mtpfix apply --unsafe-fixes` writes the right name
into the header of the shard: in place where it fits and each moment of it is a valid header, else into a new
file with the same data. No data byte changes. Otherwise the module has to be exported again.
`weight_global_scale` and `weight_scale_2` are reciprocals and are never renamed.
By hand: rename the tensors with the safetensors library, and the index with them.
Seen in: renamed FP8 block scales (vllm-project/vllm#54556); heads without `input_scale`
(NVIDIA/Model-Optimizer#2027).
"""
_ON_HUB = "only the scale's name is wrong, and no header can be edited on the Hub: `hf download` the repository, "
_ON_HUB += "`mtpfix apply --unsafe-fixes` the folder, and upload the shards"


def check(context: Context) -> Iterator[Finding]:
    """One finding a part for what is only misnamed, one for what is missing."""
    misnamed = {split_name(row.old)[0]: row for row in context.renames}
    for part, claims in by_part(context.claims.get("MTP012", ())).items():
        for named in (True, False):
            some = [claim for claim in claims if (claim.mismatch.row.unit.name in misnamed) is named]
            if some:
                yield _finding(context, part, some, misnamed.get(some[0].mismatch.row.unit.name))


def _finding(context: Context, part: str, claims: list[Claim], row: Rename | None) -> Finding:
    _, count = modules_of(claims)
    on_hub = context.world.checkpoint.source.kind == "hub"
    what, hint = "without a scale that the engine reads", "export the module again"
    if row is not None:
        old, new = split_name(row.old)[1], split_name(row.new)[1]
        what = f"whose {old} is called {new} where the engine reads it"
        hint = _ON_HUB if on_hub else f"rename {old} to {new} in the headers: mtpfix apply --unsafe-fixes"
    return finding(
        "MTP012",
        claims,
        f"{plural(count, 'module')} of the {part} {what}. {evidence(claims[0])}: {claims[0].mismatch.why}.",
        hint=hint,
        fix="unsafe" if row is not None and not on_hub else "none",
    )


RULE = Rule(
    "MTP012",
    "scales-missing",
    "L",
    "error",
    "unsafe",
    "a scale that the engine needs is absent or misnamed",
    EXPLANATION,
    check,
)
