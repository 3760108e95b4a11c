"""Verdicts that files and counts settle, whatever is decided: shards or experts missing, a router of another height,
layers of another kind, a draft that is asked for and not there.
"""

from __future__ import annotations

from mtpfix import releases
from mtpfix.decisions import Judge, Table
from mtpfix.engines.openings import opening
from mtpfix.families.base import Fault, ask
from mtpfix.families.conditions import holds_all
from mtpfix.families.patterns import key_of
from mtpfix.names import brief
from mtpfix.storage.expert_counts import FewExperts
from mtpfix.storage.routers import OddRouter
from mtpfix.verdicts import Forced, faults_of
from mtpfix.world import World

_UNINITIALIZED = "Following weights were not initialized from checkpoint"
# Engines that a wrong `layer_types` stops, by whether its length is right. For the length transformers raises when any
# of them reads the config (5.19 configuration_utils.py:567 validate_layer_type); seen on a CPU with the right length:
# vLLM 0.33.0 raises for the tensors of the other attention, SGLang 0.5.23 goes by full_attention_interval.
_READ_LAYER_TYPES = {False: frozenset({"vllm", "sglang", "transformers"}), True: frozenset({"vllm", "transformers"})}
# Loaders raise for a router of another height: vllm-0.33.0 model_executor/model_loader/weight_utils.py:1538,
# sglang-0.5.23 srt/model_loader/weight_utils.py:1583, transformers-5.20.2 modeling_utils.py:4543; every load of a
# hundred on a CPU did.
_COMPARE_ROUTERS = frozenset({"vllm", "sglang", "transformers"})
# All experts of a layer are one parameter, and nobody misses a part of it: vLLM looks for whole ones that nothing was
# loaded into (vllm-0.33.0 model_executor/model_loader/default_loader.py:567), SGLang for none. 69 of 69 loads on a CPU
# went on without a word.
_LEAVE_EXPERTS = frozenset({"vllm", "sglang"})
# vllm-0.33.0 config/speculative.py:1606: num_speculative_tokens % n_predict
_NONE_DECLARED: Forced = (
    "fails", "the config declares no draft layer", "ZeroDivisionError: integer modulo by zero"
)  # fmt: skip


def forced(world: World, table: Table) -> Forced | None:
    """A verdict that the files alone settle: shards or experts missing, or the draft absent though it is asked for."""
    found = _forced(world, table)
    if found and found[0] == "fails":
        return found
    fault = stops_beyond(world, table.judge)
    if fault is not None:
        return fault.verdict, f"{world.more_experts[table.judge.part].words}: {fault.why}", fault.error
    few = None if found else lacks_experts(world, table.judge)
    return ("degrades", f"{few.words}: the others stay unwritten", "") if few else found


def _forced(world: World, table: Table) -> Forced | None:
    found = _by_files(world, table)
    if found is not None:
        return found
    if world.layer_types is not None and table.judge.engine.name in _READ_LAYER_TYPES[world.layer_types.same_length]:
        return "fails", world.layer_types.words, ""
    router = odd_router(world, table.judge)
    if router is not None:
        return "fails", router.words, ""
    if table.judge.part != "draft" or table.judge.view is None:
        return _by_strays(world, table) if table.judge.view else None
    if world.declared == 0 and table.judge.engine.name == "vllm":
        return _NONE_DECLARED
    reading = world.reading(table.judge.engine.name, table.judge.profile.first)
    return _incomplete_draft(world, table, reading.missing) if reading.loadable else _missing_draft(world, table)


def odd_router(world: World, judge: Judge) -> OddRouter | None:
    """A router of the judge's part that fits no parameter of its engine's class, whatever the lists say."""
    router, view = world.odd_routers.get(judge.part), judge.view
    if router is None or view is None or judge.engine.name not in _COMPARE_ROUTERS:
        return None
    found = ask(view, key_of(router.name), world.layers, judge.profile.first, judge.method.name)
    return router if found is not None and found.layer != "absent" else None


def stops_beyond(world: World, judge: Judge) -> Fault | None:
    """What stops the judge's engine at experts of its part that are stored beyond their count."""
    more, view = world.more_experts.get(judge.part), judge.view
    for fault in view.faults if more and view else ():
        held = fault.beyond and releases.holds(judge.profile.first, fault.span)
        if held and more and fault.modules.find(key_of(more.name), world.layers) is not None:
            return fault
    return None


def lacks_experts(world: World, judge: Judge) -> FewExperts | None:
    """Experts of the judge's part that its engine makes room for, and that no file holds."""
    few, view = world.few_experts.get(judge.part), judge.view
    if few is None or view is None or judge.engine.name not in _LEAVE_EXPERTS:
        return None
    found = ask(view, key_of(few.name), world.layers, judge.profile.first, judge.method.name)
    return few if found is not None and found.layer == "moe" else None


def _by_strays(world: World, table: Table) -> Forced | None:
    """What comes of the draft's tensors where the target's loader reads them too."""
    value = table.fragment.value if table.fragment else {}
    for fault in faults_of(world, table.judge):
        if fault.strays and holds_all(fault.when, value, world.config, world.layers):
            for unit in world.by_part["draft"]:
                scheme = unit.stored.scheme
                fits = fault.stored in ("", scheme.kind) and (not fault.schemes or scheme.name in fault.schemes)
                if fits and fault.modules.find(unit.key, world.layers) is not None:
                    return fault.verdict, fault.why, fault.error
    return None


def _by_files(world: World, table: Table) -> Forced | None:
    """What comes of files that the index names and that are missing, and of the target's that are not opened."""
    judge, index = table.judge, world.checkpoint.index
    engine, release = judge.engine.name, judge.profile.first
    if judge.view is not None and world.opens_copies(engine, release):
        return _unread(table, world.unread_target(engine, release)) if judge.part == "target" else None
    if index is None or judge.view is None:
        return None
    rule = opening(engine, release)
    below = world.nested if rule.below == "taken for missing" else ()
    missing = (*index.missing_shards, *below)
    if missing and rule.missing == "stops":
        return "fails", f"the index names files that are missing: {', '.join(map(brief, missing[:3]))}", rule.error
    if judge.part != "target" or not rule.by_index:
        return None
    return _unread(table, world.unread_target(engine, release) or world.lost_target)


def _unread(table: Table, unread: str) -> Forced | None:
    """What comes of a module of the target that is in no file that is opened; "": there is none."""
    if not unread:
        return None
    if table.judge.engine.name == "vllm" and table.fragment is None:
        return "fails", f"no file that it opens holds {brief(unread)}", _UNINITIALIZED
    return "degrades", f"no file that it opens holds {brief(unread)}: its parameters stay unwritten", ""


def _incomplete_draft(world: World, table: Table, missing: tuple[str, ...]) -> Forced | None:
    """A draft that lacks single modules: their parameters stay as they were allocated."""
    judge, view = table.judge, table.judge.view
    for name in missing:
        beside = world.beside(name)
        found = ask(view, key_of(name), world.layers, judge.profile.first, judge.method.name, beside) if view else None
        if found is not None and found.layer != "absent":
            return "degrades", f"tensors of the draft are missing and parameters stay unwritten, e.g. {brief(name)}", ""
    return None


def _missing_draft(world: World, table: Table) -> Forced:
    view = table.judge.view
    value = table.fragment.value if table.fragment else {}
    for fault in view.faults if view else ():
        if (
            fault.stored == "missing"
            and releases.holds(table.judge.profile.first, fault.span)
            and (not fault.methods or table.judge.method.name in fault.methods)
            and holds_all(fault.when, value, world.config, world.layers)
        ):
            return fault.verdict, fault.why, fault.error
    what = _whereabouts(world)
    if table.judge.engine.name == "vllm" and table.fragment is None:
        return "fails", what, _UNINITIALIZED
    return "degrades", f"{what}, and its parameters stay unwritten", ""


def _whereabouts(world: World) -> str:
    """Where the tensors of a draft are that no engine can load."""
    if not world.by_part["draft"]:
        return "the draft's tensors are not stored"
    if 0 < world.stored_layers < (world.declared or 0):
        return f"the files hold {world.stored_layers} of the draft's {world.declared} declared layers"
    return "the draft's tensors are in files that it does not open"
