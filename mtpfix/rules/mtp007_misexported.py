"""MTP007 misexported: weights that no metadata can mend"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.names import brief
from mtpfix.rules.base import Context, Rule, contrasts_of, plural, spans
from mtpfix.world import Unit

EXPLANATION = """\
The stored tensors themselves are wrong: a projection that its family keeps in full precision was packed,
weights of full width stand beside scales for packed ones, or names of a quantizer's inner state leaked into
the export.
Why: the exporter quantized a module that no right exporter touches, or wrote it before it was packed.
In engines: some releases can load a packed projection (the matrix says which); the checkpoint is still not
what a right export is, and other releases fail.
Fix: no list entry changes stored bytes. Export again with the module left out of quantization, or restore it
from the base checkpoint (`mtpfix graft`).
By hand: there is nothing to edit.
Seen in: Gemma 4 assistants with packed projections (sgl-project/sglang#32440); leaked quantizer state
(vllm-project/vllm#38980); unpacked NVFP4 weights (NVIDIA/Model-Optimizer#868).
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part: modules whose stored form no entry can describe."""
    claims = context.claims.get("MTP007", ())
    hit = {claim.mismatch.row.unit.name for claim in claims}
    for part, units in context.world.by_part.items():
        bad = [unit for unit in units if unit.name in hit or context.world.misexported(unit)]
        if not bad:
            continue
        mine = [claim for claim in claims if claim.mismatch.judge.part == part]
        yield Finding(
            rule="MTP007",
            severity="error",
            fix="none",
            message=f"{plural(len(bad), 'module')} of the {part} stored as no metadata can mend it. {_why(bad[0])}",
            hint="export again with these modules in full precision, or restore them from the base checkpoint: "
            "mtpfix graft DIR --from BASE",
            part=part,
            engines=spans(claim.mismatch.judge for claim in mine),
            modules=tuple(unit.name for unit in bad),
            module_count=len(bad),
            contrasts=contrasts_of(mine),
        )


def _why(unit: Unit) -> str:
    scheme = unit.stored.scheme
    weight = next(
        (cell for cell in unit.stored.raw.cells if cell.suffix in ("weight", "weight_packed", "qweight")), None
    )
    held = f"{weight.suffix} is {weight.dtype} {list(weight.shape)}" if weight else "it has no weight"
    if scheme.extra:
        return f"{brief(unit.name)} carries quantizer state that no engine reads: {', '.join(scheme.extra)}."
    if scheme.kind == "odd":
        return f"{brief(unit.name)}: {held}; {scheme.note or 'the tensors fit no known scheme'}."
    wanted = (
        f"expected a full-precision weight of shape {list(unit.stored.shape)}"
        if unit.stored.shape
        else "expected full precision"
    )
    return f"{brief(unit.name)}: {held}, stored as {scheme.name}; {wanted}."


RULE = Rule("MTP007", "misexported", "G", "error", "none", "weights that no metadata can mend", EXPLANATION, check)
