"""MTP013 count-wrong: a count contradicts the stored tensors"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mtpfix.decisions import Judge
from mtpfix.families.base import whole_number
from mtpfix.forced import lacks_experts, odd_router, stops_beyond
from mtpfix.model import Finding, Location, Part
from mtpfix.names import shown
from mtpfix.rules.base import Context, Rule, plural, spans
from mtpfix.storage.expert_counts import FewExperts, MoreExperts
from mtpfix.storage.layer_types import KEY as LAYER_TYPES
from mtpfix.storage.routers import OddRouter
from mtpfix.world import World

EXPLANATION = """\
`num_nextn_predict_layers`, `mtp_num_hidden_layers` or their relatives say how many draft layers there are,
and another number is stored. `num_mtp_layers` (which vLLM's Transformers backend reads) beside them is a warning.
The same for `num_experts` and its relatives: a router has a row for each expert that it chooses from.
Why: the count was copied from the base model, or layers were dropped or added after the config was written; experts
were pruned from the target and not from the draft.
In engines: as many layers are built as the count says. Too high a count builds layers without weights; too
low a one leaves stored layers unused, and 0 keeps engines from starting a draft that is there. A router of another
height than the count of experts fits no parameter: loading stops. Experts that are counted and not stored stay as
memory was, and nothing is said.
Fix: setting the count to what is stored changes what engines build, so it is not a safe fix:
`mtpfix apply --unsafe-fixes`. The other way is to restore the missing layers. A count of experts is left alone.
By hand: set the key that the finding points to.
Seen in: pruned exports of Qwen3.5 that kept the base model's count.
"""

_RESTORE = ", or restore the missing layers from the base checkpoint: mtpfix graft DIR --from BASE"

# What is wrong with the experts of a part, and what to do.
_MISCOUNTED: Mapping[type, tuple[str, str]] = {
    OddRouter: (
        "has routers for other experts than the config counts",
        "{key} has to be the number of experts in every layer, of target and draft alike; where they differ, the part"
        " that was pruned, or was not, has to be exported again",
    ),
    FewExperts: (
        "lacks experts",
        "restore the missing experts from the base checkpoint{graft}; or prune the routers as well, and set {key} to"
        " the number of experts that every layer stores",
    ),
    MoreExperts: (
        "has more experts than the config counts",
        "its routers choose none of them; export the weights again without these tensors",
    ),
}


def check(context: Context) -> Iterator[Finding]:
    """A finding when draft layers are stored and their number is not the declared one, one for the layer types, and
    one for each part whose routers are for another number of experts, or that has too few of them."""
    yield from _counts(context)
    yield from _odd(context)
    yield from _types(context)
    yield from _experts(context)


def _counts(context: Context) -> Iterator[Finding]:
    world = context.world
    stored, declared = world.stored_layers, world.declared
    if not stored or declared is None or declared == stored:
        return
    claims = context.claims.get("MTP013", ())
    engines = {claim.mismatch.judge.engine.name: claim.mismatch.why for claim in claims}
    told = "".join(f"; {name}: {why}" for name, why in engines.items())
    yield Finding(
        rule="MTP013",
        severity="error" if declared > stored or declared == 0 else "warning",
        fix="unsafe",
        message=f"the config declares {plural(declared, 'draft layer')}, the headers hold {stored}{told}",
        hint=f"set the count to {stored} (--unsafe-fixes){_RESTORE if declared > stored else ''}",
        # vLLM divides by a count of none before it looks at a tensor (forced.py), so that no claim names it.
        engines=spans(claim.mismatch.judge for claim in claims) if declared else (),
        locations=tuple(Location("config.json", pointer) for pointer in world.count_pointers),
    )


def _odd(context: Context) -> Iterator[Finding]:
    """What stands where layers are counted, and no engine of the family counts by."""
    stored = context.world.stored_layers
    for place, value in context.world.odd_counts.items():
        key = place.rpartition("/")[2]
        counted = whole_number(value)
        more = counted is not None and counted > stored
        yield Finding(
            rule="MTP013",
            severity="error" if counted is None else "warning",
            fix="unsafe",
            message=f"{key} is {shown(value)}, the headers hold {plural(stored, 'draft layer')}"
            + ("; that is no number of layers" if counted is None else "; only vLLM's Transformers backend reads it"),
            hint=f"set it to {stored} (--unsafe-fixes){_RESTORE if more else ''}",
            locations=(Location("config.json", place),),
        )


def _types(context: Context) -> Iterator[Finding]:
    found = context.world.layer_types
    if found is not None:
        yield Finding(
            rule="MTP013",
            severity="error",
            fix="unsafe",
            message=found.words,
            hint="make the types say what is stored (--unsafe-fixes)",
            part="target",
            locations=tuple(
                Location("config.json", pointer) for pointer in context.world.pointers((LAYER_TYPES,))[-1:]
            ),
        )


def _experts(context: Context) -> Iterator[Finding]:
    """What contradicts the count of experts in each part: its routers, or else experts that are missing or too many."""
    world = context.world
    for part in world.by_part:
        judges = [table.judge for table in context.before if table.judge.part == part]
        router, few, more = world.odd_routers.get(part), world.few_experts.get(part), world.more_experts.get(part)
        if router:
            yield from _miscounted(context, router, part, [judge for judge in judges if odd_router(world, judge)])
            continue
        if few and not _is_told(world, few):
            yield from _miscounted(context, few, part, [judge for judge in judges if lacks_experts(world, judge)])
        if more:
            yield from _miscounted(context, more, part, [judge for judge in judges if stops_beyond(world, judge)])


def _is_told(world: World, few: FewExperts) -> bool:
    """Whether the index or the other layers tell of a missing expert already."""
    return few.name in world.lacking or any(tensor.startswith(f"{few.name}.") for tensor in world.lost)


def _miscounted(
    context: Context, found: OddRouter | FewExperts | MoreExperts, part: Part, stopped: list[Judge]
) -> Iterator[Finding]:
    if stopped:
        what, hint = _MISCOUNTED[type(found)]
        graft = ": mtpfix graft DIR --from BASE" if part == "draft" else ""
        yield Finding(
            rule="MTP013",
            severity="error",
            fix="none",
            message=f"the {part} {what}: {found.words}",
            hint=hint.format(key=found.key, graft=graft),
            part=part,
            modules=(found.name,),
            engines=spans(stopped),
            locations=tuple(Location("config.json", pointer) for pointer in context.world.pointers((found.key,))),
        )


RULE = Rule(
    "MTP013", "count-wrong", "M", "error", "unsafe", "a count contradicts the stored tensors", EXPLANATION, check
)
