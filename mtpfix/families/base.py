"""What a family file says, as frozen values, and the questions the decisions ask of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from mtpfix import late
from mtpfix.families.patterns import Key, PatternMap, fill
from mtpfix.frozen import dataclass, field, replace
from mtpfix.model import DecisionKind, Layer, Mapper, Packed, Part, VerdictKind
from mtpfix.releases import Span, holds

AskLayer = Literal["linear", "moe", "lm_head", "embedding", "unasked", "absent"]
LIST_LAYERS: Mapping[str, Layer] = {
    "linear": "linear", "moe": "moe", "lm_head": "lm_head", "embedding": "embedding",
}  # fmt: skip
_COUNT = late.pattern(r"\{N(?:\+(\d+))?\}")
_SLOT = late.pattern(r"\{(?!N\})")
_GROUP = late.pattern(r"\\(?:[0-9]+|g<\w+>)")
_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config")


@dataclass(frozen=True, slots=True)
class AskRow:
    """How an engine asks about the modules that a pattern names.

    asks         runtime name (a template)
    layer        kind of module; `unasked`: built without asking (nn.Linear, quant_config=None), plain
                 whatever a list says; `absent`: the engine builds no such module
    methods      quantization methods the row is for; empty: all
    projections  names under which an engine looks up an expert's gate, up and down projection, where not the usual ones
    beside       a module that has to be stored next to this one; "": none. It tells the kinds of a layer apart
    tied         the row is for an embedding that is the head too: the config says so, and no head is stored
    """

    asks: str
    layer: AskLayer
    span: Span
    methods: tuple[str, ...] = ()
    projections: tuple[str, ...] = ()
    why: str = ""
    beside: str = ""
    tied: bool = False


@dataclass(frozen=True, slots=True)
class Special:
    """A decision that the model class takes by itself, before any list is asked. `when`: see conditions.py."""

    modules: PatternMap[bool]
    methods: tuple[str, ...]
    when: Mapping[str, str]
    decision: DecisionKind
    why: str
    span: Span


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong while loading, given how a module was decided and stored.

    decided / stored  "plain", "quantized", or "" for either
    schemes           stored schemes it is for; empty: all
    suffix            a tensor that the module must own for it (`g_idx`), beside what its scheme needs; "": none
    beside_plain      last part of the name of a module next to it that has to be decided plain for it; "": none
    error             the engine's own words, as far as they are known
    strays            the modules are the draft's, and the target's loader reads them too
    beyond            the modules are experts beyond those that the config counts
    """

    modules: PatternMap[bool]
    methods: tuple[str, ...]
    decided: str
    stored: str
    schemes: tuple[str, ...]
    suffix: str
    when: Mapping[str, str]
    verdict: VerdictKind
    error: str
    why: str
    span: Span
    beside_plain: str = ""
    strays: bool = False
    beyond: bool = False


@dataclass(frozen=True, slots=True)
class Beside:
    """A file of draft weights that an engine opens for this family though the index does not name it."""

    engine: str
    file: str
    span: Span


@dataclass(frozen=True, slots=True)
class Option:
    """A switch for the matcher (base.MatchQuery.options) that a model class sets in some releases."""

    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class View:
    """How one engine, in a range of releases, builds one part of a family.

    quant          `own`: a quantization config object of this part's own; `shared`: the target's object,
                   mapped by the target's class first (vLLM drafts); `none`: built without quantization
    mapper         the class's name mapper; None: the class has none. `{N}` and `{N+1}` stand for layer numbers
    mapper_methods methods the class hands it out for; empty: all
    packed         the class's packed_modules_mapping; None: the class sets none
    architectures  config.json architectures the view is for; empty: all of the family
    options        switches for the matcher, by name; `options_at` gives those of one release
    points         every release at which something in this view changes
    """

    engine: str
    part: Part
    model_class: str
    span: Span
    quant: Literal["own", "shared", "none"]
    mapper: Mapper | None
    packed: Packed | None
    architectures: tuple[str, ...]
    rows: PatternMap[AskRow]
    specials: tuple[Special, ...]
    faults: tuple[Fault, ...]
    options: Mapping[str, Option] = field(default_factory=dict)
    points: tuple[str, ...] = ()
    mapper_methods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Experts:
    """Where a family's classes find the number of their routed experts, of which the router has a row each.

    key     config key that counts them
    router  how the names of routers end
    more    config key of further rows of the router, for which no expert is stored ("": none)
    """

    key: str
    router: str
    more: str
    source: str


@dataclass(frozen=True, slots=True)
class Note:
    """A remark about a family, or about what an engine makes of it in some releases ("": whoever reads it)."""

    text: str
    engine: str = ""
    span: Span = Span()


@dataclass(frozen=True, slots=True)
class Family:
    """A model architecture with its names.

    layers_key      config key of N, the number of the target's decoder layers
    count_keys      config keys that count draft layers; the first present one wins
    separate        the whole checkpoint is a draft of another model
    steps_key       config key whose text has a character for each numbered layer of one draft layer
    draft           patterns of the modules that belong to the draft
    full_precision  modules that every right exporter keeps in full precision
    wrapper         (wrapped, stripped) prefixes of the draft's names, where it sits under a wrapper
    draftless       engines that have no class for the draft
    beside          files that an engine opens though the index does not name them
    experts         how the config counts experts; None: not known, or none
    """

    name: str
    title: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    layers_key: str
    count_keys: tuple[str, ...]
    separate: bool
    draft: PatternMap[bool]
    full_precision: PatternMap[bool]
    wrapper: tuple[str, str] | None
    views: tuple[View, ...]
    draftless: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    sources: tuple[str, ...] = ()
    steps_key: str = ""
    beside: tuple[Beside, ...] = ()
    experts: Experts | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """What an engine asks for one checkpoint module."""

    runtime: str
    layer: AskLayer
    projections: tuple[str, ...] = ()
    why: str = ""


def ask(
    view: View,
    key: Key,
    layers: int,
    release: str,
    method: str,
    beside: Callable[[str], bool] | None = None,
    *,
    tied: bool = False,
) -> Ask | None:
    """What the view's engine asks for a module; None where the family file names no such module.

    beside  whether a module of this name is stored next to the one that is asked for
    tied    whether the embedding is the head too
    """

    def accepts(row: AskRow) -> bool:
        if (row.beside and not (beside and beside(row.beside))) or (row.tied and not tied):
            return False
        return holds(release, row.span) and (not row.methods or method in row.methods)

    found = view.rows.find(key, layers, accepts)
    if found is None:
        return None
    row, bound = found
    return Ask(fill(row.asks, bound, layers), row.layer, row.projections, row.why)


def special_for(fact: Special, key: Key, layers: int) -> Special | None:
    """A special as it holds for one module, its conditions' slots filled in; None where it does not name the module."""
    found = fact.modules.find(key, layers)
    if found is None:
        return None
    if not any("{" in text for text in fact.when.values()):
        return fact
    return replace(fact, when={name: fill(text, found[1], layers) for name, text in fact.when.items()})


def view_for(family: Family, engine: str, part: Part, release: str, architectures: tuple[str, ...]) -> View | None:
    """The view of an engine release on a part; None where that release does not know the family."""
    for view in family.views:
        if view.engine != engine or view.part != part or not holds(release, view.span):
            continue
        if not view.architectures or set(view.architectures) & set(architectures):
            return view
    return None


def options_at(view: View, release: str) -> Mapping[str, str]:
    """The matcher's switches that the view's class sets in a release."""
    return {name: option.value for name, option in view.options.items() if holds(release, option.span)}


def class_mapper(view: View, layers: int, method: str) -> Mapper | None:
    """The name mapper that the view's class hands to a quantization method, or None where it hands out none."""
    if view.mapper_methods and method not in view.mapper_methods:
        return None
    return _numbered(view.mapper, layers)


def _numbered(rules: Mapper | None, layers: int) -> Mapper | None:
    """A mapper with its slots for layer numbers filled in."""
    if rules is None:
        return None

    def numbered(text: str) -> str:
        if "{" not in text:
            return text
        return _COUNT.sub(lambda found: str(layers + int(found[1] or 0)), text)

    def filled(pairs: tuple[tuple[str, str | None], ...]) -> tuple[tuple[str, str | None], ...]:
        return tuple((numbered(old), None if new is None else numbered(new)) for old, new in pairs)

    return Mapper(filled(rules.prefix), filled(rules.substr), filled(rules.suffix), rules.regex)


def numbers_of(family: Family, layers: int) -> frozenset[int]:
    """The layer numbers that a family file makes a difference for, in patterns and in the names that engines ask."""
    maps: list[PatternMap[Any]] = [family.draft, family.full_precision]
    found = {layers, 2 * layers}
    for view in family.views:
        maps += [view.rows, *(fact.modules for fact in view.specials), *(fault.modules for fault in view.faults)]
        steps = (step for row in view.rows.values() for step in row.asks.split("."))
        found.update(int(step) for step in steps if step.isascii() and step.isdecimal())
    return frozenset(found.union(*(rows.numbers() for rows in maps)))


def texts_of(family: Family, layers: int) -> tuple[str, ...] | None:
    """The texts of a family's mappers, by which engines rename the entries of lists.

    None for a family of which a class looks up entries that it makes up from a layer's number: no layer of it is like
    another.
    """
    if any("{" in text and _SLOT.search(text) for text in condition_texts(family)):
        return None
    mappers = [mapper for view in family.views if (mapper := _numbered(view.mapper, layers))]
    pairs = (pair for mapper in mappers for kind in (mapper.prefix, mapper.substr, mapper.suffix) for pair in kind)
    regexes = (pair for mapper in mappers for pair in mapper.regex)
    written = [*pairs, *((old, _GROUP.sub("", new or "")) for old, new in regexes)]
    return tuple(dict.fromkeys(text for pair in written for text in pair if text))


def condition_texts(family: Family) -> tuple[str, ...]:
    """What the conditions of a family's rows look for."""
    conditions = [fact.when for view in family.views for fact in view.specials]
    conditions += [fault.when for view in family.views for fault in view.faults]
    return tuple(text for when in conditions for text in when.values())


def change_points(family: Family, engine: str) -> tuple[str, ...]:
    """Releases at which some view of an engine changes, unordered."""
    points = {point for view in family.views if view.engine == engine for point in view.points}
    points |= {row.span.since for row in family.beside if row.engine == engine and row.span.since}
    return tuple(points)


def text_configs(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The nested text configs and the config itself, in that order."""
    nested = (config.get(key) for key in TEXT_CONFIGS)
    return (*(part for part in nested if isinstance(part, Mapping)), config)


def config_value(config: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """The value of the first key that a text config or the top level holds, or None."""
    for part in text_configs(config):
        for key in keys:
            if part.get(key) is not None:
                return part[key]
    return None


def whole_number(value: Any) -> int | None:
    """The value where it is a whole number from 0 on that engines, which count in 64 bits, can hold; else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def router_rows(config: Mapping[str, Any], experts: Experts) -> int | None:
    """The rows of a router as the config counts them; None where it does not count, or its keys contradict each other:
    transformers' config classes take one key for another (`attribute_map`), and the last one that is read wins.
    """
    parts, counted = text_configs(config), expert_count(config, experts)
    more = {whole_number(part[experts.more]) for part in parts if experts.more and experts.more in part} or {0}
    rows = next(iter(more)) if len(more) == 1 else None
    return None if counted is None or rows is None else counted + rows


def expert_count(config: Mapping[str, Any], experts: Experts) -> int | None:
    """The experts of a layer as the config counts them; None as in `router_rows`."""
    parts = text_configs(config)
    counts = {whole_number(part[key]) for part in parts for key in _EXPERTS if key in part}
    return next(iter(counts)) if len(counts) == 1 and any(experts.key in part for part in parts) else None


def is_draft(family: Family, key: Key, layers: int) -> bool:
    """Whether a checkpoint module belongs to the draft."""
    return family.separate or family.draft.find(key, layers) is not None
