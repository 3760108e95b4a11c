"""What happens when an engine loads a part: decisions set against storage.

Loading is names, shapes and dtypes: a stored tensor finds a parameter of its name or none, fits it or does not, and
what nothing reached stays unwritten. The layouts below say which parameters a scheme has; families add their loaders'
exceptions as `fault` rows. Seen in real loads on a CPU (vLLM 0.33.0, SGLang 0.5.23); TensorRT-LLM and transformers
were read only.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

from mtpfix import releases
from mtpfix.decisions import SPARSE, Decided, Judge, Row, Table, sparse
from mtpfix.engines.words import REFUSALS, full_into_nvfp4
from mtpfix.families.base import Fault, View
from mtpfix.families.conditions import holds_all
from mtpfix.frozen import dataclass, field, replace
from mtpfix.model import Answer, EngineRow, VerdictKind
from mtpfix.names import brief
from mtpfix.world import World

_RANK: dict[VerdictKind, int] = {"loads": 0, "unsupported": 1, "unknown": 2, "degrades": 3, "fails": 4}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A module that does not load as it is stored under one judge.

    kind  `unlisted` stored plain, built quantized · `unexpected` stored quantized, built plain · `error` the
          engine raises on the decision · `scheme` another scheme than stored · `scales` a scale is missing or
          renamed · `odd` no signature fits · `fault` a known fault of this engine
    """

    judge: Judge
    row: Row
    answer: Answer
    kind: str
    verdict: VerdictKind
    why: str
    error: str = ""
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """The parameters of a scheme: the weight's name, whether it keeps the full width, each scale and its form.

    What an engine allocates for a scheme, and what an exporter stores for it, are the same names and forms.
    """

    weight: str
    full: bool
    scales: Mapping[str, str] = field(default_factory=dict)


PLAIN = Layout("weight", True)
_NVFP4 = {"weight_scale": "group", "weight_scale_2": "tensor"}
_INT4 = {"scales": "group", "qzeros": "group"}
LAYOUTS: Mapping[str, Layout] = {
    "plain": PLAIN,
    "bf16": PLAIN,
    "f16": PLAIN,
    "f32": PLAIN,
    "nvfp4": Layout("weight", False, {**_NVFP4, "input_scale": "tensor"}),
    "nvfp4-w4a16": Layout("weight", False, _NVFP4),
    "nvfp4-awq": Layout("weight", False, {**_NVFP4, "input_scale": "tensor", "pre_quant_scale": "in"}),
    "fp8": Layout("weight", True, {"weight_scale": "tensor", "input_scale": "tensor"}),
    "fp8-channel": Layout("weight", True, {"weight_scale": "channel"}),
    "fp8-block": Layout("weight", True, {"weight_scale_inv": "block"}),
    "fp8-block-ct": Layout("weight", True, {"weight_scale": "block"}),
    "fp8-pb": Layout("weight", True, {"weight_scale": "block"}),
    "mxfp8": Layout("weight", True, {"weight_scale": "group"}),
    "mxfp4": Layout("weight", False, {"weight_scale": "group"}),
    **{f"mxfp4-inv{kind}": Layout("weight", False, {"weight_scale_inv": "group"}) for kind in ("", "-u8")},
    "dsv4-fp8": Layout("weight", True, {"weight_scale_inv": "block"}),
    "dsv4-fp4": Layout("weight", False, {"weight_scale": "group"}),
    "ct-nvfp4": Layout("weight_packed", False, {
        "weight_scale": "group", "weight_global_scale": "tensor", "input_global_scale": "tensor"}),
    "ct-nvfp4a16": Layout("weight_packed", False, {"weight_scale": "group", "weight_global_scale": "tensor"}),
    "ct-mxfp4": Layout("weight_packed", False, {"weight_scale": "group"}),
    **{f"ct-w{bits}a16": Layout("weight_packed", False, {"weight_scale": "group"}) for bits in range(2, 9)},
    "ct-w8a8": Layout("weight", True, {"weight_scale": "channel"}),
    "modelslim-w8a8": Layout("weight", True, {"weight_scale": "channel", "weight_offset": "channel"}),
    "int8-block": Layout("weight", True, {"weight_scale_inv": "block"}),
    **{f"{method}{bits}": Layout("qweight", False, _INT4) for method in ("gptq", "awq") for bits in range(2, 9)},
    "quark-int4": Layout("weight", False, {"weight_scale": "group", "weight_zero_point": "group"}),
    "w4afp8": Layout("weight", False, {"weight_scale_inv": "group"}),
    "gptoss-mxfp4": Layout("weight", False, {"weight_scale": "group"}),  # renamed while it is loaded
    "bnb4": Layout("weight", False, {"weight.absmax": "group"}),
    "bnb8": Layout("weight", True, {"SCB": "channel"}),
}  # fmt: skip
# What a loader does with a stored tensor that no parameter waits for, unless a family says otherwise.
LONGEST = 2000  # characters of a reason: a hostile config is quoted in part
SKIPS_UNKNOWN_NAMES = frozenset({"sglang", "transformers"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What loading a stored scheme into the parameters of an allocated one comes to."""

    verdict: VerdictKind
    why: str


@lru_cache(maxsize=1024)
def outcome(engine: str, allocated: str, stored: str) -> Outcome:
    """The general outcome: names that no parameter waits for, shapes that do not fit, scales never written."""
    built, held = LAYOUTS.get(allocated), LAYOUTS.get(stored)
    if built is None or held is None:
        return Outcome("fails", f"{stored} tensors do not fit the parameters of {allocated or 'another scheme'}")
    skips = engine in SKIPS_UNKNOWN_NAMES
    if built.weight != held.weight:
        if skips:
            return Outcome(
                "degrades", f"no parameter is called {held.weight}: the tensors are skipped, nothing is loaded"
            )
        return Outcome("fails", f"no parameter is called {held.weight}")
    if built.full != held.full:
        return Outcome("fails", "packed and full-width weights have unlike shapes")
    unlike = [name for name, form in held.scales.items() if built.scales.get(name, form) != form]
    if unlike:
        return Outcome("fails", f"{unlike[0]} has another shape than the parameter")
    unknown = [name for name in held.scales if name not in built.scales]
    if unknown and not skips:
        return Outcome("fails", f"no parameter is called {unknown[0]}")
    unwritten = [name for name in built.scales if name not in held.scales]
    if unwritten:
        return Outcome("degrades", f"the weights are cast and {' and '.join(unwritten)} never written")
    if unknown:
        return Outcome("degrades", f"{' and '.join(unknown)} are dropped, the quantized bytes read as plain weights")
    return Outcome("loads", "")


def unwritten(allocated: str, stored: str) -> tuple[str, ...]:
    """The scales that an allocated scheme has and a stored one lacks: nothing writes them when it is loaded."""
    built, held = LAYOUTS.get(allocated), LAYOUTS.get(stored)
    return tuple(name for name in built.scales if name not in held.scales) if built and held else ()


def mismatches(world: World, table: Table) -> Iterator[Mismatch]:
    """Every module of a table that does not load as it is stored."""
    judge = table.judge
    at = ("mismatches", id(table.decided), judge.engine.name, judge.method, tuple(map(id, faults_of(world, judge))))
    if at not in world.kept:  # what it holds lives as long as what is known by its id
        world.kept[at] = table.decided, judge, tuple(_mismatches(world, table))
    _, first, found = world.kept[at]
    yield from found if first is judge else (replace(item, judge=judge) for item in found)


def _mismatches(world: World, table: Table) -> Iterator[Mismatch]:
    value = table.fragment.value if table.fragment else {}

    def wrong(decided: Decided) -> list[Mismatch]:
        faulty = bool(faults_of(world, table.judge))
        found = (
            mismatch(world, table.judge, value, row, answer) if faulty else _general(table.judge, row, answer)
            for row, answer in decided
        )
        return [item for item in found if item is not None]

    found = wrong(table.decided)
    stands = any(item.row.others for item in found)
    yield from wrong(table.every(world, (item.row for item in found))) if stands else found


def mismatch(
    world: World,
    judge: Judge,
    value: Mapping[str, Any],
    row: Row,
    answer: Answer,
    beside: Container[str] | None = None,
) -> Mismatch | None:
    """How a module fails to load as it is stored under a decision, or None where it loads.

    beside  last parts of the names of modules next to it that are decided plain (see `leaves_beside`); None: those that
            are so under `value`
    """
    fault = _fault(world, judge, value, row, answer, beside)
    general = _general(judge, row, answer)
    if fault is None:
        return general
    if fault.verdict == "loads":
        return None
    kind = general.kind if general else "fault"
    return Mismatch(judge, row, answer, kind, fault.verdict, fault.why, fault.error, fault)


def _fault(
    world: World,
    judge: Judge,
    value: Mapping[str, Any],
    row: Row,
    answer: Answer,
    beside: Container[str] | None,
) -> Fault | None:
    for fault in faults_of(world, judge):
        if (
            _applies(fault, row, answer)
            and fault.modules.find(row.unit.key, world.layers) is not None
            and holds_all(fault.when, value, world.config, world.layers)
            and (not fault.beside_plain or _is_plain_beside(world, judge, value, row, fault.beside_plain, beside))
        ):
            return fault
    return None


def leaves_beside(world: World, judge: Judge) -> tuple[str, ...]:
    """Last parts of the names of modules by whose decisions faults of those next to them go, in a judge's release."""
    return tuple(dict.fromkeys(fault.beside_plain for fault in faults_of(world, judge) if fault.beside_plain))


def _is_plain_beside(
    world: World, judge: Judge, value: Mapping[str, Any], row: Row, leaf: str, beside: Container[str] | None
) -> bool:
    """Whether the judge decides plain the module of this last name next to a row's. `beside`: see `mismatch`."""
    if beside is not None:
        return leaf in beside
    at = ("beside", id(judge), id(value), leaf)
    if at not in world.kept:
        rows = [found for found in judge.rows if found.unit.name.endswith(f".{leaf}")]
        shared = {SPARSE: sparse(world, value, [rows])}
        answers = zip(rows, judge.answers(world, value, rows, shared), strict=True)
        plain = {name for found, answer in answers if answer.decision == "plain" for name in found.names}
        world.kept[at] = judge, value, plain  # both live as long as what is known by their id
    return f"{row.unit.name.rpartition('.')[0]}.{leaf}" in world.kept[at][2]


def faults_of(world: World, judge: Judge) -> tuple[Fault, ...]:
    """The faults of a view that hold in a judge's release, for its method and for what is stored; worked out once."""
    release, method = judge.profile.first, judge.method.name
    at = ("faults", id(judge.view), release, method)
    if at not in world.kept:
        world.kept[at] = tuple(
            fault
            for fault in (_faults_about(world, judge.view) if judge.view else ())
            if releases.holds(release, fault.span) and (not fault.methods or method in fault.methods)
        )
    found: tuple[Fault, ...] = world.kept[at]
    return found


def _faults_about(world: World, view: View) -> tuple[Fault, ...]:
    """The faults of a view whose names may be those of stored modules: judges that others tell apart are alike."""
    at = ("faults about", id(view))
    if at not in world.kept:
        texts = {unit.key.text for unit in world.units}
        world.kept[at] = tuple(
            fault for fault in view.faults if not fault.beyond and any(map(fault.modules.may_fit, texts))
        )
    found: tuple[Fault, ...] = world.kept[at]
    return found


def _applies(fault: Fault, row: Row, answer: Answer) -> bool:
    scheme = row.unit.stored.scheme
    return (
        fault.decided in ("", answer.decision)
        and fault.stored in ("", scheme.kind)
        and (not fault.schemes or scheme.name in fault.schemes)
        and (not fault.suffix or any(cell.suffix == fault.suffix for cell in row.unit.stored.raw.cells))
    )


def _general(judge: Judge, row: Row, answer: Answer) -> Mismatch | None:
    stored = row.unit.stored
    engine = judge.engine.name
    if answer.decision in ("absent", "unknown") or stored.scheme.kind == "other":
        return None
    if answer.decision == "error":
        return Mismatch(judge, row, answer, "error", "fails", answer.cause.rule, _refusal(judge, row, answer))
    if stored.scheme.kind == "odd":
        return Mismatch(judge, row, answer, "odd", "fails", stored.scheme.note or "the stored tensors fit no scheme")
    if answer.decision == "plain":
        if stored.plain:
            return None
        found = outcome(engine, "plain", stored.scheme.name)
        return Mismatch(judge, row, answer, "unexpected", found.verdict, found.why)
    if stored.plain:
        found = _CUT if _is_cut(row, answer.scheme) else outcome(engine, answer.scheme, "plain")
        return Mismatch(judge, row, answer, "unlisted", found.verdict, found.why, _words(judge, row, answer, found))
    return _between_schemes(judge, row, answer)


# Linears that a tensor-parallel engine cuts along the inputs: the loader takes as many columns as the parameter has
# (vllm-0.33.0 model_executor/parameter.py:216-226; sglang-0.5.23 srt/layers/parameter.py:293-330).
_ROW_PARALLEL = frozenset({"o_proj", "down_proj", "out_proj"})
_CUT = Outcome("degrades", "the first columns of the full-width weight are cast into the packed one, scales unwritten")


def _is_cut(row: Row, allocated: str) -> bool:
    """Whether a plain weight is cut to a packed parameter's width instead of refused."""
    built, asked = LAYOUTS.get(allocated), row.ask
    if built is None or built.full or built.weight != PLAIN.weight or asked is None or asked.layer != "linear":
        return False
    return asked.runtime.rpartition(".")[2] in _ROW_PARALLEL


def _refusal(judge: Judge, row: Row, answer: Answer) -> str:
    layer = row.ask.layer if row.ask else ""
    return REFUSALS.get((judge.profile.engine, judge.method.name, layer), answer.error)


def _words(judge: Judge, row: Row, answer: Answer, found: Outcome) -> str:
    """What the engine prints where a plain weight fails to fit a packed one, as far as it is known."""
    if row.ask is None or found.verdict != "fails" or answer.scheme not in ("nvfp4", "nvfp4-w4a16"):
        return ""
    stored = row.unit.stored
    return full_into_nvfp4(judge.engine.name, row.ask.layer, row.ask.runtime, stored.name, stored.shape)


def _between_schemes(judge: Judge, row: Row, answer: Answer) -> Mismatch | None:
    """Stored quantized and built quantized: the same scheme, one that differs by a scale, or another."""
    scheme = row.unit.stored.scheme
    if scheme.missing:
        why = f"scales that the engine needs are not stored: {', '.join(scheme.missing)}"
        return Mismatch(judge, row, answer, "scales", "degrades", why)
    if scheme.name == answer.scheme or not answer.scheme:
        return None
    found = outcome(judge.engine.name, answer.scheme, scheme.name)
    if found.verdict == "loads" or (answer.scheme, scheme.name) in _HARMLESS.get(judge.engine.name, ()):
        return None
    kind = "scales" if _same_weights(answer.scheme, scheme.name) else "scheme"
    return Mismatch(judge, row, answer, kind, found.verdict, f"{found.why}")


# (allocated, stored) pairs that differ in input_scale alone: vLLM drops it for W4A16
# (vllm-0.33.0 model_executor/layers/quantization/modelopt.py:2532-2545), SGLang presets it.
_HARMLESS: Mapping[str, frozenset[tuple[str, str]]] = {
    "vllm": frozenset({("nvfp4-w4a16", "nvfp4"), ("fp8-channel", "fp8")}),
    "sglang": frozenset({("nvfp4-w4a16", "nvfp4"), ("nvfp4", "nvfp4-w4a16")}),
}


def _same_weights(allocated: str, stored: str) -> bool:
    """Whether two schemes store the same weights, so that only scales (or their names) tell them apart."""
    pair = {allocated, stored}
    return any(pair <= same for same in _ALIKE)


_ALIKE = (
    frozenset({"fp8-block", "fp8-block-ct", "fp8-pb"}),
    frozenset({"nvfp4", "nvfp4-w4a16"}),
    frozenset({"ct-nvfp4", "ct-nvfp4a16"}),
)


Forced = tuple[VerdictKind, str, str]


def rank_of(verdict: VerdictKind) -> int:
    """How bad a verdict is."""
    return _RANK[verdict]


def worst(found: list[Mismatch]) -> Mismatch | None:
    """The mismatch that settles the verdict: of the worst the one that an engine meets first."""
    return max(found, key=lambda item: (_RANK[item.verdict], _is_met_early(item)), default=None)


def _is_met_early(item: Mismatch) -> int:
    """Models are built before weights are loaded, and their heads after their layers."""
    if item.kind != "error":
        return 0
    return 1 if item.row.ask is not None and item.row.ask.layer == "lm_head" else 2


def engine_row(table: Table, found: list[Mismatch], forced: Forced | None = None) -> EngineRow:
    """The matrix row of a table. `forced`: a verdict that storage alone settles (draft absent, shards missing)."""
    judge, profile = table.judge, table.judge.profile
    settled = worst(found)
    verdict, reason, error = _settled(table, settled, forced)
    units = {item.row.unit.name: item.row.unit for item in found if item.verdict in ("fails", "degrades")}
    names = tuple(chain.from_iterable(unit.members for unit in units.values()))
    return EngineRow(
        profile.engine,
        profile.first,
        profile.releases,
        profile.latest,
        judge.part,
        verdict,
        brief(reason, LONGEST),
        names,
        brief(error, LONGEST),
    )


def _settled(table: Table, settled: Mismatch | None, forced: Forced | None) -> Forced:
    if table.judge.known != "known":
        return table.judge.known, table.judge.reason, ""
    if settled and (settled.verdict == "fails" or not forced):
        return settled.verdict, settled.why, settled.error
    return forced or _unknown_or_loads(table)


def _unknown_or_loads(table: Table) -> tuple[VerdictKind, str, str]:
    unknown = [row for row, answer in table.decided if answer.decision == "unknown"]
    if unknown:
        count, name = sum(len(row.units) for row in unknown), brief(unknown[0].unit.name)
        return "unknown", f"{count} modules have names that mtpfix has no facts about, e.g. {name}", ""
    return "loads", "", ""
