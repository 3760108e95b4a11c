"""MTP010 partial-fusion: shards of one fused module are declared or stored unlike"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.rules.base import Claim, Context, Rule, by_state, finding, modules_of, plural

EXPLANATION = """\
Engines fuse linears: q, k and v; gate and up; the two first projections of MLA; the experts of a layer. A
list names some shards of a fused module and not the others.
Why: one fused module has one scheme, so its shards must be listed together or not at all.
In engines: the model is not built: "Detected some but not all shards of ... are quantized".
Fix: the entries are completed, or lifted to the fused name, to match what is stored (`mtpfix apply`). Where
the shards are stored unlike, no list can say it, and the checkpoint has to be exported again.
By hand: list every shard of the fused module, or none.
Seen in: `q_a_proj` alone in the list of a DeepSeek checkpoint (sgl-project/sglang#9712); gate and up
projections configured differently (Intel/auto-round#1726); single experts in a list
(vllm-project/vllm#41994).
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part and state: entries to complete, or shards stored unlike."""
    for part, fixed, claims in by_state(context.claims.get("MTP010", ())):
        yield _finding(part, claims, fixed)


def _finding(part: str, mine: list[Claim], fixed: bool) -> Finding:
    _, count = modules_of(mine)
    asked = mine[0].mismatch.row.ask
    fused = asked.runtime if asked else ""
    what = "is a shard of a fused module" if count == 1 else "are shards of fused modules"
    message = f"{plural(count, 'module')} of the {part} {what}"
    if fixed:
        message += " that the list names only in part"
        hint = "complete the entries: mtpfix apply"
    else:
        message += ", and they are stored unlike each other" if count > 1 else ", and the others are stored otherwise"
        hint = "export again with all shards of a fused module in one scheme"
    text = f"{message}, e.g. {fused}: {mine[0].mismatch.why}."
    return finding("MTP010", mine, text, hint=hint, fix="safe" if fixed else "none")


RULE = Rule(
    "MTP010",
    "partial-fusion",
    "J",
    "error",
    "safe",
    "shards of one fused module are declared or stored unlike",
    EXPLANATION,
    check,
)
