"""MTP013 count-wrong: a count contradicts the stored tensors"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding, Location
from mtpfix.rules.base import Context, Rule

EXPLANATION = """\
`num_nextn_predict_layers`, `mtp_num_hidden_layers` or their relatives say how many draft layers there are, and
engines build that many. A count that is higher than what is stored builds layers without weights; a lower one
leaves stored layers unused, and 0 keeps engines from starting a draft that is there.
Setting the count to what is stored changes what engines build, so it is not a safe fix; the other way is to
restore the missing layers.
"""


def check(context: Context) -> Iterator[Finding]:
    """A finding when draft layers are stored and their number is not the declared one."""
    world = context.world
    stored = world.stored_layers
    if not stored or world.declared is None or world.declared == stored:
        return
    yield Finding(
        rule="MTP013",
        severity="error" if world.declared > stored or world.declared == 0 else "warning",
        fix="unsafe",
        message=f"the config declares {world.declared} draft layer(s), the headers hold {stored}",
        hint=f"set the count to {stored}, or restore the missing layers from the base checkpoint",
        locations=tuple(Location("config.json", pointer) for pointer in world.count_pointers),
    )


RULE = Rule(
    "MTP013", "count-wrong", "M", "error", "unsafe", "a count contradicts the stored tensors", EXPLANATION, check
)
