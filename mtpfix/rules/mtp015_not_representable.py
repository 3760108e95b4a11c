"""MTP015 not-representable: no entry can say it without catching something else"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.rules.base import Context, Rule, by_part, evidence, finding, modules_of, plural, way_out

EXPLANATION = """\
No entry can say what is stored without saying something wrong as well: the format has no list that an engine
reads (MXFP4), or the engine looks the module up under a name that another module of the target has too.
Why: an entry for the draft's `model.layers.0` would switch off the target's layer 0. Adding it would be a
false repair.
In engines: the draft stays as it is decided now; the matrix says which releases load it.
Fix: none in the checkpoint. Use an engine that loads the part, or export the draft quantized. It is a warning
as long as some engine's newest release loads the part, else an error.
By hand: there is nothing to edit.
Seen in: Qwen3-Next NVFP4 in SGLang, which asks for the draft's experts as `model.layers.0.mlp.experts`.
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part and engine, with the collision named."""
    for part, claims in by_part(context.claims.get("MTP015", ())).items():
        for engine in dict.fromkeys(claim.mismatch.judge.engine.name for claim in claims):
            mine = [claim for claim in claims if claim.mismatch.judge.engine.name == engine]
            _, count = modules_of(mine)
            name = mine[0].collision
            why = (
                f"it asks for {name}, also the name of a module stored otherwise"
                if name
                else "it reads no list for them"
            )
            yield finding(
                "MTP015",
                mine,
                f"no safe entry covers {plural(count, 'module')} of the {part} in {engine}: {why}. "
                f"{evidence(mine[0])}: {mine[0].mismatch.why}.",
                hint=way_out(context, part),
                severity="warning" if context.loads_somewhere(part) else "error",
            )


RULE = Rule(
    "MTP015",
    "not-representable",
    "–",
    "warning",
    "none",
    "no entry can say it without catching something else",
    EXPLANATION,
    check,
)
