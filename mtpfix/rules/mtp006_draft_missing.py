"""MTP006 draft-missing: the config declares a draft that is not stored, or not wholly"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding, Location
from mtpfix.rules.base import Context, Rule
from mtpfix.world import World

EXPLANATION = """\
A count key of the config says that the checkpoint holds draft layers, but no tensor of them is stored, or
single modules are missing that every such layer has.
Why: the usual cause is an exporter that loads the model through a class which drops the draft.
In engines: speculative decoding fails when it starts, or runs a draft of uninitialised numbers.
Fix: no metadata makes up for missing tensors. Restore them from the base checkpoint (`mtpfix graft`), or set
the count to 0, which gives up speculative decoding with this checkpoint (`mtpfix apply --unsafe-fixes`).
By hand: copy the draft's tensors from the base model into a shard of their own, add them to the index, and
exclude them in the lists.
Seen in: GLM-4.7 and Qwen3-Next by ModelOpt (NVIDIA/Model-Optimizer#750 and #733); fine-tuned exports of
Qwen3.5 (vllm-project/vllm-ascend#15531).
"""


def check(context: Context) -> Iterator[Finding]:
    """A finding when draft layers are declared and none is stored, or a stored one lacks modules."""
    world = context.world
    if world.declared == 0 or world.checkpoint_lists_missing_draft:
        return
    if world.by_part["draft"] or not world.declared:
        yield from _incomplete(world)
        return
    family = world.family
    names = " or ".join(family.count_keys) if family else ""
    yield Finding(
        rule="MTP006",
        severity="error",
        fix="unsafe",
        message=f"the config declares {world.declared} draft layer(s) ({names}), and no tensor of a draft is stored",
        hint="restore the draft: mtpfix graft DIR --from BASE; or set the count to 0 to give the draft up",
        locations=tuple(Location("config.json", pointer) for pointer in world.count_pointers),
    )


def _incomplete(world: World) -> Iterator[Finding]:
    missing = world.lacking
    if missing:
        count = f"{len(missing)} module{'s' if len(missing) > 1 else ''}"
        yield Finding(
            rule="MTP006",
            severity="error",
            fix="none",
            message=f"the draft lacks {count} that every such layer has, e.g. {missing[0]}: no tensor of it is stored",
            hint="restore the missing tensors from the base checkpoint: mtpfix graft DIR --from BASE",
            modules=missing,
            module_count=len(missing),
        )


RULE = Rule(
    "MTP006",
    "draft-missing",
    "F",
    "error",
    "unsafe",
    "the config declares a draft that is not stored",
    EXPLANATION,
    check,
)
