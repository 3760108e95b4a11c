"""The waist: stored modules × declarations × engine profiles -> one table of decisions.

Everything above reads only what is made here. A *judge* is one engine profile on one part of the model; it holds
what that engine asks for each stored module, so that judging another version of a config (the solver does that)
costs only the matching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, compress, pairwise
from typing import Any, Literal

from mtpfix import late, releases
from mtpfix.alike import NONE, Alike, alike, is_literal, layer_and_rest
from mtpfix.checkpoint.limits import check_draft, check_judged
from mtpfix.engines import openings
from mtpfix.engines.base import Dtypes, Engine, Matcher, MatchQuery, Method, Sparse
from mtpfix.engines.sources import (
    CONFIG,
    DESCRIPTION,
    Fragment,
    config_fragments,
    declared,
    description_fragment,
    read_by,
    refusal,
    sidecar_fragment,
)
from mtpfix.families import identify
from mtpfix.families.base import (
    LIST_LAYERS,
    TEXT_CONFIGS,
    Ask,
    Family,
    Special,
    View,
    ask,
    change_points,
    class_mapper,
    condition_texts,
    config_value,
    is_draft,
    numbers_of,
    options_at,
    special_for,
    texts_of,
    view_for,
    whole_number,
)
from mtpfix.families.conditions import holds_all
from mtpfix.families.patterns import Key, key_of
from mtpfix.families.plugins import with_plugin
from mtpfix.formats import format_of, list_of
from mtpfix.formats.base import ExclusionList, Format
from mtpfix.frozen import dataclass, field, replace
from mtpfix.idle import MANY, Doubles, Numbers, apart, doubles, numbers_in, runs_of
from mtpfix.model import Answer, Cause, Checkpoint, Index, JsonFile, Mapper, Packed, Part, RawModule, StoredModule
from mtpfix.modules import EXPERTS, within
from mtpfix.names import split_name, tensor_name
from mtpfix.storage.lacking import lacking
from mtpfix.storage.layer_types import KEY as LAYER_TYPES
from mtpfix.storage.layer_types import LayerTypes, contradiction
from mtpfix.storage.modules import stored_modules

Known = Literal["known", "unsupported", "unknown"]
UNQUANTIZED = Method("unquantized")
SPARSE = "sparse"
_NO_CONFIG = Answer("plain", Cause(rule="the checkpoint has no quantization config"))
# The draft's projections that no layer holds, each with those that stand in its stead in some families.
_PROJECTIONS: Mapping[str, tuple[str, ...]] = {
    "mtp.fc": ("mtp.fc_embedding", "mtp.fc_hidden"), "pre_projection": (), "post_projection": (),
}  # fmt: skip
_READ_HEADERS = frozenset({"gptq", "awq"})
# Formats whose entries no engine takes for regular expressions, unless they start with `re:`.
_GLOBS = frozenset({"modelopt", "compressed-tensors", "quark"})
_OTHER_NAMES = "it opens consolidated*.safetensors alone, which hold other tensors than the files that are looked at"
_UNNAMED = Answer("unknown", Cause(rule="the family file names no such module"))


@lru_cache(maxsize=1 << 10)
def _experts(name: str, numbers: tuple[int, ...]) -> tuple[str, ...]:
    """The names that experts of these numbers have in the place of the one named."""
    head, marker, rest = name.partition(EXPERTS)
    tail = rest.partition(".")[2]
    return tuple([f"{head}{marker}{number}.{tail}" for number in numbers])


_DIGITS = late.pattern("[0-9]+")


@dataclass(frozen=True, slots=True)
class Unit:
    """A stored module (or a row of experts stored alike), its lookup key, and whether it is the draft's."""

    stored: StoredModule
    key: Key
    draft: bool

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def members(self) -> tuple[str, ...]:
        """The module's name, or the names of the experts that it stands for."""
        return _experts(self.name, self.stored.experts) if self.stored.experts else (self.name,)


@dataclass(frozen=True, slots=True)
class Profile:
    """A range of releases of one engine that behave alike here."""

    engine: str
    releases: tuple[str, ...]
    latest: bool

    @property
    def first(self) -> str:
        return self.releases[0]


@dataclass(frozen=True, slots=True)
class Row:
    """One question: a unit, what the engine asks for it, and what the model class may decide by itself.

    others  the same units of layers that nothing tells from this one's (see alike.py): what is decided for the unit is
            decided for them, each under its own name
    at      where the layer's number stands in the name that is asked; -1 where the name has none
    """

    unit: Unit
    ask: Ask | None
    specials: tuple[Special, ...] = ()
    others: tuple[Unit, ...] = ()
    at: int = -1

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units that the row stands for."""
        return (self.unit, *self.others)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the units that the row stands for."""
        return tuple(unit.name for unit in self.units)

    @property
    def questions(self) -> int:
        """How many different questions the row stands for."""
        return 1 + len(self.others) if self.at >= 0 else 1

    def each(self) -> Iterator[Row]:
        """The row, and one for each of the others."""
        yield replace(self, others=(), at=-1) if self.others else self
        for unit in self.others:
            yield Row(unit, self.ask and replace(self.ask, runtime=self._asked(unit)), self.specials)

    def _asked(self, unit: Unit) -> str:
        assert self.ask is not None
        name, number = self.ask.runtime, number_of(unit)
        return name if self.at < 0 else name[: self.at] + number + name[self.at + len(number) :]


class AskedNames:
    """The names that some rows ask; those of the layers that a row stands for are not written out."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._whole: set[str] = set()
        self._numbers: dict[tuple[str, str], set[str]] = {}  # what stands before and behind a number -> the numbers
        for row in rows:
            if row.ask is None:
                continue
            name, at = row.ask.runtime, row.at
            self._whole.add(name)
            if at >= 0 and row.others:
                around = name[:at], name[at + len(number_of(row.unit)) :]
                self._numbers.setdefault(around, set()).update(map(number_of, row.others))

    def __contains__(self, name: str) -> bool:
        return name in self._whole or any(
            found[0] in self._numbers.get((name[: found.start()], name[found.end() :]), ())
            for found in _DIGITS.finditer(name)
        )


def number_of(unit: Unit) -> str:
    """The number of a unit's layer."""
    found = layer_and_rest(unit.name)
    return found[0][1] if found else ""


def every(world: World, rows: Iterable[Row]) -> tuple[Row, ...]:
    """A row for each unit that some rows stand for, in the order of the units."""
    found = [one for row in rows for one in row.each()]
    return tuple(sorted(found, key=lambda row: world.place[row.unit.name]))


@dataclass(frozen=True)
class Judge:
    """One engine profile on one part.

    known    `unsupported`: this release knows the family or the format not; `unknown`: mtpfix has no facts
    mappers  in the order in which the engine applies them to the config object this part uses
    """

    engine: Engine
    profile: Profile
    part: Part
    method: Method
    view: View | None
    known: Known
    reason: str
    rows: tuple[Row, ...] = ()
    mappers: tuple[Mapper, ...] = ()
    packed: Packed = field(default_factory=dict)

    @cached_property
    def signature(self) -> tuple[object, ...]:
        """Judges of one signature answer alike: the same rows, asked of the same stage of the same matcher."""
        points = self.engine.change_points(self.method.name)
        stage = sum(releases.at_least(self.profile.first, point) for point in points)
        options = tuple(sorted(self._class_options.items()))
        packed = tuple(sorted(self.packed.items()))
        quant = self.view.quant if self.view else ""
        return self.engine.name, self.part, self.method, stage, id(self.rows), self.mappers, packed, options, quant

    def answers(
        self,
        world: World,
        value: Mapping[str, Any],
        rows: Sequence[Row] | None = None,
        shared: dict[Any, Any] | None = None,
    ) -> tuple[Answer, ...]:
        """The decisions under a quantization config, one for each row.

        rows    others than the judge's own
        shared  what judges have in common that are asked about this very config; under SPARSE the config without
                entries that fall on nothing which any of them looks up
        """
        asked = self.rows if rows is None else rows
        if self.view is None:
            return ()
        if self.view.quant == "none":
            return tuple(_built_plain(row) for row in asked)
        known = {} if shared is None else shared
        matcher = self.engine.matcher(self.query(world, known.get(SPARSE, value), known))
        at = ("answers", id(matcher), id(asked))
        if at not in known:  # releases in which nothing changed for this config have one matcher
            known[at] = matcher, asked, self._asked(world, value, asked, matcher)
        found: tuple[Answer, ...] = known[at][2]
        return found

    def _asked(
        self, world: World, value: Mapping[str, Any], asked: Sequence[Row], matcher: Matcher
    ) -> tuple[Answer, ...]:
        """What the matcher answers, where no class decides by itself."""
        decided: dict[int, Answer | None] = {}

        def special(row: Row) -> Answer | None:
            for fact in row.specials:
                if id(fact) not in decided:
                    holds = holds_all(fact.when, value, world.config, world.layers)
                    decided[id(fact)] = Answer(fact.decision, Cause(rule=fact.why)) if holds else None
                if decided[id(fact)]:
                    return decided[id(fact)]
            return None

        return tuple(special(row) or _listed(matcher, row) for row in asked)

    def every(self, world: World) -> tuple[Row, ...]:
        """A row for each unit that the judge's rows stand for, in the order of the units."""
        at = ("every", id(self.rows))
        if at not in world.kept:
            world.kept[at] = self.rows, every(world, self.rows)  # the rows live as long as what is known by their id
        found: tuple[Row, ...] = world.kept[at][1]
        return found

    def query(self, world: World, value: Mapping[str, Any], shared: dict[Any, Any] | None = None) -> MatchQuery:
        options = {"model_type": world.model_type, "num_hidden_layers": str(world.layers), "part": self.part}
        if "expert_dtype" in world.config:
            options["expert_dtype"] = str(world.config["expert_dtype"])
        return MatchQuery(
            release=self.profile.first,
            method=self.method.name,
            config=value,
            mappers=self.mappers,
            packed=self.packed,
            dtypes=world.dtypes if self.reads_headers or world.model_type == "deepseek_v4" else None,
            options={**options, **self._class_options},
            shared={} if shared is None else shared,
        )

    @property
    def _class_options(self) -> Mapping[str, str]:
        return options_at(self.view, self.profile.first) if self.view else {}

    @property
    def reads_headers(self) -> bool:
        """Whether the method makes a list of what the headers say is packed. DeepSeek-V4 looks up one expert alone."""
        return self.method.name in _READ_HEADERS


def _built_plain(row: Row) -> Answer:
    if row.ask is not None and row.ask.layer == "absent":
        return Answer("absent", Cause(rule=row.ask.why or "the engine builds no such module"))
    return Answer("plain", Cause(rule="the model class builds this part without quantization"))


def _listed(matcher: Matcher, row: Row) -> Answer:
    asked = row.ask
    if asked is None:
        return _UNNAMED
    layer = LIST_LAYERS.get(asked.layer)
    if layer is not None:
        return matcher.decide(asked.runtime, layer, asked.projections)
    if asked.layer == "absent":
        return Answer("absent", Cause(rule=asked.why or "the engine builds no such module"))
    return Answer("plain", Cause(rule=asked.why or "the model class builds it without asking the quantization config"))


# What vLLM's Transformers backend counts draft layers by (vllm-0.33.0 config/speculative.py:1385), and no model class.
OTHERS_COUNT = "num_mtp_layers"

# Whether an engine opens every file, which ones though the index does not name them, no file in folders below, and
# Mistral's own copies alone.
Opens = tuple[bool, tuple[str, ...], bool, bool]


def _is_opened(raw: RawModule, opens: Opens) -> bool:
    """Whether a module lies in a file that an engine opens."""
    every, also, top_only, _ = opens
    return (every or raw.listed or raw.shard in also) and not (top_only and "/" in raw.shard)


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine comes to read of the draft.

    loadable  whether as many layers are in the files that it opens as the config declares
    missing   modules of those layers that it does not come to read
    """

    loadable: bool
    missing: tuple[str, ...]


@dataclass(frozen=True)
class World:
    """What does not change while configs are judged: modules, family, N, the JSON files as they are.

    layers  N, the number of the target's decoder layers
    thins   of entries that read alike and fall on nothing one stands for the others
    """

    checkpoint: Checkpoint
    family: Family | None
    family_reason: str
    layers: int
    units: tuple[Unit, ...]
    thins: bool = True

    @cached_property
    def kept(self) -> dict[Any, Any]:
        """What is worked out once for a world."""
        return {}

    @cached_property
    def place(self) -> Mapping[str, int]:
        """The place of each unit among all, by its name."""
        return {unit.name: at for at, unit in enumerate(self.units)}

    @cached_property
    def alike(self) -> Alike:
        """The layers of the target that no list in the checkpoint's files, no engine and no family row tells apart."""
        family, count = self.family, self.layers
        texts = texts_of(family, count) if family else None
        if family is None or texts is None:
            return NONE
        drafts = {number for unit in self.by_part["draft"] for number in unit.key.numbers}
        numbers = {number + by for number in drafts for by in (-count, 0, count)} | numbers_of(family, count)
        held = (*config_fragments(self.files), sidecar_fragment(self.files), description_fragment(self.files))
        values = [fragment.value for fragment in held if fragment]
        formats = [format_of(value) for value in values]
        globs = all(fmt is not None and fmt.name in _GLOBS for fmt in formats)
        modules = ((unit.name, _kind_of(unit, count)) for unit in self.by_part["target"])
        return alike(modules, values, texts, numbers, globs, self.doubles)

    @cached_property
    def numbers(self) -> Numbers | None:
        """The numbers of the names that engines may look up; None where a rule of the family takes numbers for anything
        but what they are."""
        family, count = self.family, self.layers
        texts = texts_of(family, count) if family else None
        if not self.thins or family is None or texts is None or not all(map(is_literal, texts)):
            return None
        names = [*(unit.name for unit in self.units), *(raw.name for raw in self.draft_modules)]
        experts = set[int]().union(*{unit.stored.experts for unit in self.units})
        found = {number + by for number in map(int, numbers_in(names)) for by in (-count, 0, count)}
        found |= numbers_of(family, count)
        others = numbers_in((*names, *texts, *condition_texts(family), *map(str, found)))
        return Numbers(others, runs_of(map(str, experts)))

    def doubles(self, entries: tuple[str, ...], values: Sequence[Any] = ()) -> Doubles:
        """The entries of a list that fall on no name and read like an earlier one (see idle.py).

        values  what a table holds for each
        """
        if len(entries) < MANY or self.numbers is None:
            return {}
        if any(value != values[0] for value in values):
            return doubles(entries, self.numbers, values)
        if ("doubles", entries) not in self.kept:
            self.kept["doubles", entries] = doubles(entries, self.numbers)
        found: Doubles = self.kept["doubles", entries]
        return found

    def hides(self, where: ExclusionList, removed: Sequence[int]) -> bool:
        """Whether an entry that goes may have stood for one that stays, which then nobody has looked at.

        removed  the places of those that go
        """
        doubles = {*chain.from_iterable(self.doubles(where.entries).values())} if removed else set()
        if not doubles or where.keyed:
            return bool(doubles)
        gone = {*removed}
        left = [at for at, place in enumerate(where.places) if place not in gone]
        again = self.doubles(tuple(where.entries[at] for at in left)).values()
        return not doubles.intersection(left) <= {left[at] for at in chain.from_iterable(again)}

    def live(self, entries: tuple[str, ...]) -> tuple[str, ...]:
        """The entries of a list that may be meant for a stored module; of those that are not one of a kind."""
        gone = set(chain.from_iterable(self.doubles(entries).values()))
        return tuple(entry for at, entry in enumerate(entries) if at not in gone) if gone else entries

    @property
    def files(self) -> Mapping[str, JsonFile]:
        return self.checkpoint.files

    @property
    def config(self) -> Mapping[str, Any]:
        value: Mapping[str, Any] = self.files[CONFIG].value
        return value

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type", ""))

    @cached_property
    def architectures(self) -> tuple[str, ...]:
        named = self.config.get("architectures")
        return tuple(name for name in named if isinstance(name, str)) if isinstance(named, (list, tuple)) else ()

    @cached_property
    def dtypes(self) -> Mapping[str, str]:
        """Tensor name -> dtype of everything that engines open, for the methods that read headers."""
        modules = self.checkpoint.modules.values()
        rows = {tensor_name(raw.name, cell.suffix): cell.dtype for raw in modules if raw.listed for cell in raw.cells}
        return Dtypes(rows)

    @cached_property
    def declared(self) -> int | None:
        """The draft layers that the config declares, or None where it declares none."""
        if self.family is None or not self.family.count_keys:
            return None
        return whole_number(config_value(self.config, self.family.count_keys))

    def in_draft(self, name: str) -> bool:
        """Whether a module name is the draft's."""
        return self.family is not None and is_draft(self.family, key_of(name), self.layers)

    @cached_property
    def lost(self) -> Mapping[str, bool]:
        """The tensors that the index names and no file holds, in its order; whether they are the draft's."""
        known: dict[str, bool] = {}  # one look for all experts of a layer: an index may name 500,000 tensors
        found = {}
        for tensor in self.checkpoint.index.ghosts if self.checkpoint.index else ():
            name = split_name(tensor)[0]
            holder, experts, _ = name.partition(".experts.")
            if not experts:
                found[tensor] = self.in_draft(name)
            elif holder in known:
                found[tensor] = known[holder]
            else:
                found[tensor] = known[holder] = self.in_draft(name)
        return found

    @cached_property
    def lost_target(self) -> str:
        """The first tensor of the target that the index puts into a missing file and that is nowhere else, or ""."""
        missing = self.checkpoint.index is not None and self.checkpoint.index.missing_shards
        return next((tensor for tensor, drafted in self.lost.items() if not drafted), "") if missing else ""

    @cached_property
    def draft_modules(self) -> tuple[RawModule, ...]:
        """Every module of the draft, norms included, in header order. Raises UnreadableError for too many tensors."""
        known = {unit.name: unit.draft for unit in self.units} if self.family else {}
        found = tuple(within(self.checkpoint.modules, self.in_draft, known)) if self.family else ()
        check_draft(0, sum(len(raw.cells) for raw in found), self.checkpoint.source.id)
        return found

    def beside(self, name: str) -> Callable[[str], bool]:
        """Whether a module of some name is stored next to this one."""
        head = name.rpartition(".")[0]
        return lambda leaf: f"{head}.{leaf}" in self.checkpoint.modules

    @cached_property
    def _schemes(self) -> Mapping[str, str]:
        return {unit.name: unit.stored.scheme.name for unit in self.units}

    def scheme_of(self, name: str) -> str:
        """The stored scheme of a module by name; "other" for norms and the like."""
        head, _, rest = name.partition(".experts.")
        return self._schemes.get(name) or self._expert_schemes.get((head, rest.partition(".")[2]), "other")

    @cached_property
    def _expert_schemes(self) -> Mapping[tuple[str, str], str]:
        found: dict[tuple[str, str], str] = {}
        for unit in self.units:
            if unit.stored.experts:
                head, _, rest = unit.name.partition(".experts.")
                found[head, rest.partition(".")[2]] = unit.stored.scheme.name
        return found

    @property
    def count_pointers(self) -> tuple[str, ...]:
        """Where config.json counts draft layers."""
        return self.pointers(self.family.count_keys if self.family else ())

    @cached_property
    def odd_counts(self) -> Mapping[str, Any]:
        """Places of config.json, and what they hold, that say something else of the draft layers than is stored and by
        which no engine of the family counts: another's key, or what is no number of layers."""
        if self.family is None or not self.stored_layers:
            return {}
        own = self.family.count_keys
        held = {place: _at(self.config, place) for place in self.pointers(dict.fromkeys((*own, OTHERS_COUNT)))}
        return {
            place: value
            for place, value in held.items()
            if whole_number(value) is None or (place.rpartition("/")[2] not in own and value != self.stored_layers)
        }

    @cached_property
    def layer_types(self) -> LayerTypes | None:
        """The attention types of the target's layers where config.json contradicts the tensors."""
        declared = config_value(self.config, (LAYER_TYPES,))
        if declared is None or self.family is None:
            return None
        return contradiction(declared, (unit.name for unit in self.by_part["target"]), self.layers)

    def pointers(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Where config.json holds one of some keys: the top level, then the text configs."""
        return tuple(pointers_of(self.config, tuple(keys)))

    @cached_property
    def config_as_stored(self) -> Mapping[str, Any]:
        """config.json's value with draft counts that say how many layers are stored; the value itself where they do."""
        value = self.config
        if self.declared is not None and self.stored_layers and self.declared != self.stored_layers:
            for place in self.count_pointers:
                value = _with(value, place.split("/")[1:], self.stored_layers)
        return value

    @cached_property
    def stored_layers(self) -> int:
        """How many draft layers the headers hold."""
        numbered = {layer_of(unit.name) for unit in self.by_part["draft"]} - {None}
        return -(-len(numbered) // self.steps)

    @cached_property
    def steps(self) -> int:
        """How many numbered layers one draft layer has."""
        key = self.family.steps_key if self.family else ""
        pattern = config_value(self.config, (key,)) if key else None
        return len(pattern) if isinstance(pattern, str) and pattern else 1

    @property
    def draft_is_absent(self) -> bool:
        """Whether a draft is declared and no tensor of it is stored: then no list has anything to say about it."""
        return bool(self.declared) and not self.by_part["draft"]

    @cached_property
    def checkpoint_lists_missing_draft(self) -> bool:
        """Whether the index names draft tensors in files that are missing: then the index is at fault."""
        index = self.checkpoint.index
        return index is not None and bool(index.missing_shards) and any(self.lost.values())

    @cached_property
    def lacking(self) -> tuple[str, ...]:
        """Modules that the stored draft layers lack though every such layer has them; () where no draft is stored."""
        if not self.reading("", "").loadable:
            return ()
        return self._lacking(self.by_part["draft"])

    def reading(self, engine: str, release: str) -> Reading:
        """What an engine comes to read of the draft; "" stands for one that opens the files of the index, no other."""
        opens = self._opens(engine, release)
        if opens not in self._readings:
            self._readings[opens] = self._reading(opens)
        return self._readings[opens]

    def unread_target(self, engine: str, release: str) -> str:
        """A module of the target that an engine does not come to read; "" where it reads all."""
        opens = self._opens(engine, release)
        units = self.by_part["target"] if self._has_unopened or opens[-1] else ()
        return next((unit.name for unit in units if not self._is_read(unit, opens)), "")

    @cached_property
    def _has_unopened(self) -> bool:
        index = self.checkpoint.index
        in_step = index is None or index == Index(index.file)
        return bool(self.nested) or not (in_step or all(raw.listed for raw in self.checkpoint.modules.values()))

    def _opens(self, engine: str, release: str) -> Opens:
        rows = self.family.beside if self.family else ()
        also = tuple(row.file for row in rows if row.engine == engine and releases.holds(release, row.span))
        if not engine:
            return False, also, False, False
        rule = openings.opening(engine, release)
        return not rule.by_index, also, rule.below != "opened", self.opens_copies(engine, release)

    def _is_read(self, unit: Unit, opens: Opens) -> bool:
        if not opens[-1]:
            return _is_opened(unit.stored.raw, opens)
        return all(map(self._is_copied, unit.members if unit.stored.experts else (unit.stored.raw.name,)))

    def _is_copied(self, name: str) -> bool:
        """Whether every tensor of a module is in Mistral's own copies, too."""
        own, copy = self.checkpoint.modules.get(name), self.checkpoint.consolidated.get(name)
        return own is None or (copy is not None and {*own.cells} <= {*copy.cells})

    def opens_copies(self, engine: str, release: str) -> bool:
        """Whether an engine opens `consolidated*.safetensors` alone, which lie beside the other files."""
        return bool(self.checkpoint.consolidated) and openings.opening(engine, release).consolidated

    @cached_property
    def odd_copies(self) -> bool:
        """Whether those hold anything under another name, or in another form, than the other files do."""
        held = self.checkpoint.modules
        return any(
            name not in held or not {*raw.cells} <= {*held[name].cells}
            for name, raw in self.checkpoint.consolidated.items()
        )

    @cached_property
    def _readings(self) -> dict[Opens, Reading]:
        return {}

    def _reading(self, opens: Opens) -> Reading:
        units = tuple(unit for unit in self.by_part["draft"] if self._is_read(unit, opens))
        layers = {layer_of(unit.name) for unit in units} - {None}
        enough = bool(units) and len(layers) >= (self.declared or 0) * self.steps
        loadable = enough or (self.family is not None and self.family.separate)
        return Reading(loadable, self._lacking(units) if loadable else ())

    def _lacking(self, units: Sequence[Unit]) -> tuple[str, ...]:
        if self.family is None:
            return ()
        layers, targets = _members_of(units), self._target_members.values()
        found = [f"{layer}.{name}" for layer, held in layers.items() for name in lacking(held, targets)]
        names = {unit.name for unit in units}
        wanted = [name for one, others in _PROJECTIONS.items() for name in (others if names & {*others} else (one,))]
        wanted += [f"{layer}.eh_proj" for layer in layers]
        plain = self.family.full_precision
        missing = [name for name in wanted if name not in names and plain.find(key_of(name), self.layers) is not None]
        return (*missing, *found)

    @cached_property
    def _target_members(self) -> Mapping[str, Mapping[str, frozenset[int]]]:
        return _members_of(self.by_part["target"])

    @property
    def nested(self) -> tuple[str, ...]:
        """Files of weights in folders below the checkpoint's own."""
        return tuple(shard.name for shard in self.checkpoint.shards if "/" in shard.name)

    def misexported(self, unit: Unit) -> bool:
        """Whether a module is stored in a form that no list can describe."""
        scheme = unit.stored.scheme
        if scheme.kind == "odd" or scheme.extra:
            return True
        if self.family is None or scheme.kind != "quantized":
            return False
        return self.family.full_precision.find(unit.key, self.layers) is not None

    @cached_property
    def by_part(self) -> Mapping[Part, tuple[Unit, ...]]:
        """The units of each part."""
        return {
            "target": tuple(unit for unit in self.units if not unit.draft),
            "draft": tuple(unit for unit in self.units if unit.draft),
        }

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that the checkpoint stores or declares."""
        if self.family is not None and self.family.separate:
            return ("draft",)
        return ("target", "draft") if self.by_part["draft"] or self.declared else ("target",)


def _with(value: Mapping[str, Any], path: Sequence[str], new: Any) -> Mapping[str, Any]:
    """An object with another value at the end of a path."""
    return {**value, path[0]: _with(value[path[0]], path[1:], new) if len(path) > 1 else new}


def _kind_of(unit: Unit, layers: int) -> object:
    """All that counts about a unit besides its name and what lists say."""
    stored, numbers = unit.stored, unit.key.numbers
    suffixes = tuple(cell.suffix for cell in stored.raw.cells)
    return stored.scheme, stored.raw.listed, stored.experts, suffixes, bool(numbers) and numbers[0] < layers


def world_of(checkpoint: Checkpoint) -> World:
    """The world of a checkpoint; an unknown family leaves every module to the target. Raises UnreadableError for more
    modules than any model has."""
    config = checkpoint.files[CONFIG].value
    family, reason = identify(config)
    if family and DESCRIPTION in checkpoint.files:
        family = with_plugin(family)
    layers = whole_number(config_value(config, (family.layers_key,))) if family else None
    if family and layers is None:
        reason, family = f"{family.layers_key} in config.json is missing or no whole number", None
    count = layers or 0
    judged = [stored for stored in stored_modules(checkpoint) if stored.scheme.kind != "other"]
    check_judged(len(judged), checkpoint.source.id)
    units = []
    for stored in judged:
        key = key_of(stored.name)
        units.append(Unit(stored, key, family is not None and is_draft(family, key, count)))
    drafts = [unit for unit in units if unit.draft]
    tensors = sum(len(unit.stored.raw.cells) * max(1, len(unit.stored.experts)) for unit in drafts)
    check_draft(len({layer_of(unit.name) for unit in drafts}), tensors, checkpoint.source.id)
    return World(checkpoint, family, reason, count, tuple(units))


def layer_of(name: str) -> str | None:
    """The path to the first number of a name (`mtp.layers.0`), or None where it has none."""
    steps = name.split(".")
    place = next(compress(range(len(steps)), map(str.isdecimal, steps)), None)
    return None if place is None else ".".join(steps[: place + 1])


def _members_of(units: Iterable[Unit]) -> dict[str, dict[str, frozenset[int]]]:
    """Layer -> what is below it -> the experts of it."""
    found: dict[str, dict[str, frozenset[int]]] = {}
    for unit in units:
        layer = layer_of(unit.name)
        if layer is not None and unit.name != layer:
            name = unit.name.removeprefix(f"{layer}.")
            head, inside, rest = name.partition(".experts.")
            if unit.stored.experts and inside:
                name = f"{head}.experts.{rest.partition('.')[2]}"
            members, experts = found.setdefault(layer, {}), _set_of(unit.stored.experts)
            members[name] = members[name] | experts if name in members else experts
    return found


@lru_cache(maxsize=1 << 6)
def _set_of(experts: tuple[int, ...]) -> frozenset[int]:
    """One set for all layers that have the same experts."""
    return frozenset(experts)


def _at(config: Mapping[str, Any], place: str) -> Any:
    value: Any = config
    for key in place.split("/")[1:]:
        value = value[key]
    return value


def pointers_of(config: Mapping[str, Any], keys: Sequence[str]) -> Iterator[str]:
    """JSON pointers of the places where the top level or a text config holds one of the keys."""
    for prefix, part in (("", config), *((f"/{name}", config.get(name)) for name in TEXT_CONFIGS)):
        if isinstance(part, Mapping):
            yield from (f"{prefix}/{key}" for key in keys if part.get(key) is not None)


def judges(
    world: World, engines: Iterable[Engine], *, fragment: Fragment | None = None, alike: Alike = NONE
) -> tuple[Judge, ...]:
    """Every engine profile on every part. `fragment`: judge this config instead of the one the engine would read.

    `alike`: layers that stand for others; it must hold for every config that the judges are asked about.
    """
    found: list[Judge] = []
    for engine in engines:
        found.extend(_engine_judges(world, engine, fragment, alike))
    return tuple(found)


def _engine_judges(world: World, engine: Engine, fragment: Fragment | None, alike: Alike) -> list[Judge]:
    names = releases.modelled(engine.name)
    chosen = fragment or declared(engine.name, world.files)
    methods = {name: _method(world, engine, name, fragment, chosen) for name in names}
    points = {names[0], *_family_points(world, engine.name), *_file_points(world, engine.name)}
    points.update(new for old, new in pairwise(names) if methods[old] != methods[new])
    for method in {found.name for found in methods.values() if found.name}:
        points.update(engine.change_points(method))
    return [
        _judge(world, engine, Profile(engine.name, group, group[-1] == names[-1]), part, methods[group[0]], alike)
        for group in releases.groups(engine.name, points)
        for part in world.parts
    ]


def _family_points(world: World, engine: str) -> tuple[str, ...]:
    return change_points(world.family, engine) if world.family else ()


def _file_points(world: World, engine: str) -> tuple[str, ...]:
    """The releases in which it changed what a missing file does, where one is missing."""
    index = world.checkpoint.index
    return openings.points(engine) if index is not None and (index.missing_shards or world.nested) else ()


def _method(world: World, engine: Engine, release: str, fragment: Fragment | None, chosen: Fragment | None) -> Method:
    """The method that a release sees. `chosen`: the config in which it looks, `fragment` or what it reads."""
    if chosen is None:
        return UNQUANTIZED
    found = engine.method(chosen.value, release, model_type=world.model_type)
    refused = refusal(engine.name, release, found.name, world.files) if fragment is None else ""
    return Method(found.name, refused) if refused and not found.error else found


def _judge(world: World, engine: Engine, profile: Profile, part: Part, method: Method, alike: Alike) -> Judge:
    if world.family is None:
        return Judge(engine, profile, part, method, None, "unknown", world.family_reason)
    view = view_for(world.family, engine.name, part, profile.first, world.architectures)
    if view is None:
        return Judge(engine, profile, part, method, None, *_no_view(world.family, engine.name, part))
    if not method.name and not method.error:
        return Judge(engine, profile, part, method, None, "unsupported", "this release does not know the format")
    if world.opens_copies(engine.name, profile.first) and world.odd_copies:
        return Judge(engine, profile, part, method, None, "unknown", _OTHER_NAMES)
    rows = _rows(world, alike, view, profile.first, method.name)
    mappers, packed = _config_object(world, view, profile.first, method.name)
    packed = engine.handed_over(method.name, packed, profile.first)
    return Judge(engine, profile, part, method, view, "known", "", rows, mappers, packed)


def _no_view(family: Family, engine: str, part: Part) -> tuple[Known, str]:
    if any(view.engine == engine and view.part == part for view in family.views):
        return "unsupported", f"this release does not know {family.title}"
    if part == "draft" and engine in family.draftless:
        return "unsupported", f"{engine} has no draft class for {family.title}"
    if engine == "transformers" and part == "draft":
        return "unsupported", "transformers builds no draft"
    return "unknown", f"no facts about {family.title} in {engine}"


def _config_object(world: World, view: View, release: str, method: str) -> tuple[tuple[Mapper, ...], Packed]:
    """The mappers and the packed mapping of the config object that a part uses.

    A shared object is the target's: mapped by the target's class, then by the draft's, whose packed mapping replaces
    the target's where it has one (vllm-0.33.0 model_executor/model_loader/utils.py:367-387).
    """
    chain = [view]
    if view.quant == "shared" and world.family is not None:
        target = view_for(world.family, view.engine, "target", release, world.architectures)
        chain = [target, view] if target else chain
    at = ("config object", method, *map(id, chain))
    if at not in world.kept:
        made = (class_mapper(link, world.layers, method) for link in chain)
        mappers = tuple(mapper for mapper in made if mapper is not None)
        world.kept[at] = mappers, next((link.packed for link in reversed(chain) if link.packed is not None), {})
    found: tuple[tuple[Mapper, ...], Packed] = world.kept[at]
    return found


def _rows(world: World, alike: Alike, view: View, release: str, method: str) -> tuple[Row, ...]:
    """The rows of a view. The world keeps them: the same config is judged by many, and many configs by the same."""
    chosen = NONE if method in _READ_HEADERS else alike
    if ("rows", id(chosen)) not in world.kept:
        world.kept["rows", id(chosen)] = _RowCache(world, chosen)
    found: tuple[Row, ...] = world.kept["rows", id(chosen)].rows(view, release, method)
    return found


class _RowCache:
    """Rows by view and release range; rows that ask the same questions are one object, so that judges can be told
    to be alike by identity."""

    def __init__(self, world: World, alike: Alike) -> None:
        self._world, self._alike = world, alike
        self._rows: dict[tuple[int, str, int], tuple[Row, ...]] = {}
        self._same: dict[tuple[object, ...], tuple[Row, ...]] = {}
        self._bound: dict[tuple[int, tuple[str, ...]], Special] = {}

    @cached_property
    def _groups(self) -> tuple[tuple[Unit, ...], ...]:
        """The units, those of layers that are alike together, by the first of each."""
        first = {(path, number): members[0] for (path, _), members in self._alike.members.items() for number in members}
        groups: dict[object, list[Unit]] = {}
        for unit in self._world.units:
            found = None if unit.draft or not first else layer_and_rest(unit.name)
            number = first.get(found[0]) if found else None
            at = unit.name if found is None or number is None else (found[0][0], number, found[1])
            groups.setdefault(at, []).append(unit)
        return tuple(map(tuple, groups.values()))

    def rows(self, view: View, release: str, method: str) -> tuple[Row, ...]:
        stage = sum(releases.at_least(release, point) for point in view.points)
        at = (id(view), method, stage)
        if at not in self._rows:
            rows = tuple(self._build(view, release, method))
            content = tuple((id(row.unit), row.ask, len(row.others), tuple(map(id, row.specials))) for row in rows)
            self._rows[at] = self._same.setdefault(content, rows)
        return self._rows[at]

    def _build(self, view: View, release: str, method: str) -> Iterator[Row]:
        facts = [fact for fact in view.specials if releases.holds(release, fact.span)]
        facts = [fact for fact in facts if not fact.methods or method in fact.methods]

        def row(unit: Unit) -> Row:
            asked = ask(view, unit.key, self._world.layers, release, method, self._world.beside(unit.name))
            return Row(unit, asked, tuple(self._specials(facts, unit)))

        for first, *others in self._groups:
            found = row(first)
            if first.draft == (view.part == "draft") or (found.ask is not None and view.part == "draft"):
                one = _standing(found, others, row(others[0])) if others else found
                yield from (one,) if one else (found, *map(row, others))

    def _specials(self, facts: Iterable[Special], unit: Unit) -> Iterator[Special]:
        """The specials that name a unit; those with like conditions are one object, to be decided once."""
        for fact in facts:
            found = special_for(fact, unit.key, self._world.layers)
            if found is not None:
                yield self._bound.setdefault((id(fact), tuple(found.when.values())), found)


def _standing(row: Row, others: Sequence[Unit], second: Row) -> Row | None:
    """The row for a unit that stands for others; None where the engine asks for them in another way.

    `second`: the row of the first of the others, which shows where the number stands in the name.
    """
    if row.specials != second.specials or (row.ask is None) != (second.ask is None):
        return None
    if row.ask is None or second.ask is None or row.ask == second.ask:
        return replace(row, others=tuple(others))
    old, new = number_of(row.unit), number_of(second.unit)
    at = row.ask.runtime.find(f".{old}.") + 1
    moved = row.ask.runtime[:at] + new + row.ask.runtime[at + len(old) :]
    return replace(row, others=tuple(others), at=at) if at and replace(row.ask, runtime=moved) == second.ask else None


Decided = tuple[tuple[Row, Answer], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """What one judge decides about every module it asks for, and the config it read."""

    judge: Judge
    fragment: Fragment | None
    decided: Decided

    @property
    def size(self) -> int:
        """How many modules are decided."""
        return sum(1 + len(row.others) for row, _ in self.decided)

    def every(self, world: World, rows: Iterable[Row] | None = None) -> Decided:
        """The decisions with a row for each unit, and its own cause. `rows`: of these rows alone."""
        if rows is None and not any(row.others for row, _ in self.decided):
            return self.decided
        asked = every(world, (row for row, _ in self.decided) if rows is None else rows)
        return _decided(world, self.judge, self.fragment, asked)


def tables(world: World, all_judges: Sequence[Judge], files: Mapping[str, JsonFile] | None = None) -> tuple[Table, ...]:
    """The decisions of every judge under the checkpoint's files, or under another version of them."""
    current = world.files if files is None else files
    known: dict[tuple[object, ...], Decided] = {}
    shared: dict[object, dict[Any, Any]] = {}
    chosen = {name: declared(name, current) for name in dict.fromkeys(judge.engine.name for judge in all_judges)}
    asked = {id(judge.rows): judge.rows for judge in all_judges}.values()
    out = []
    for judge in all_judges:
        fragment = read_by(judge.engine.name, judge.profile.first, current, chosen[judge.engine.name])
        place = fragment and (fragment.file, fragment.pointer)
        at = (judge.signature, place)
        if at not in known:
            if place not in shared:
                shared[place] = shared_under(world, fragment.value, asked) if fragment else {}
            known[at] = _decided(world, judge, fragment, judge.rows, shared[place])
            if fragment:  # which lives as long as its id counts
                world.kept["told", judge.signature, id(fragment.value)] = fragment.value, known[at]
        out.append(Table(judge, fragment, known[at]))
    return tuple(out)


def recalled(world: World, signature: tuple[object, ...], value: Mapping[str, Any]) -> Decided | None:
    """What judges of a signature decide under a config, where tables were made of it."""
    found = world.kept.get(("told", signature, id(value)))
    return found and found[1]


def tables_under(world: World, all_judges: Sequence[Judge], fragment: Fragment) -> tuple[Table, ...]:
    """The decisions of every judge under one quantization config, whatever file it would read."""
    shared: dict[Any, Any] = {SPARSE: sparse(world, fragment.value, [judge.rows for judge in all_judges])}
    return tuple(Table(judge, fragment, _decided(world, judge, fragment, judge.rows, shared)) for judge in all_judges)


def list_in(world: World, value: Mapping[str, Any]) -> tuple[Format | None, ExclusionList | None]:
    """The format of a config and its exclusion list, looked for once."""
    at = ("list", id(value))
    if at not in world.kept:
        world.kept[at] = value, list_of(value)  # the config lives as long as its id counts
    found: tuple[Format | None, ExclusionList | None] = world.kept[at][1]
    return found


def shared_under(world: World, value: Mapping[str, Any], asked: Iterable[Sequence[Row]]) -> dict[Any, Any]:
    """What judges have in common that are asked about a config; the same for all rows to which the same entries mean
    nothing. It is kept for the configs of files: they are few, and asked about again and again."""
    gone = _idle(world, value, asked)
    at = ("shared", id(value), gone)
    if at not in world.kept:
        world.kept[at] = value, {SPARSE: _without(world, value, gone)}  # the config lives as long as its id counts
    found: dict[Any, Any] = world.kept[at][1]
    return found


def sparse(world: World, value: Mapping[str, Any], asked: Iterable[Sequence[Row]]) -> Mapping[str, Any]:
    """A config without entries of its exclusion list that fall on nothing which some rows ask for."""
    return _without(world, value, _idle(world, value, asked))


def _idle(world: World, value: Mapping[str, Any], asked: Iterable[Sequence[Row]]) -> frozenset[int]:
    _, where = list_in(world, value)
    return frozenset() if where is None else idle_in(world, value, where, names_asked(asked))


def _without(world: World, value: Mapping[str, Any], gone: frozenset[int]) -> Mapping[str, Any]:
    _, where = list_in(world, value)
    if where is None or not gone:
        return value
    held = listed(value, where)
    kept = [at for at in range(len(where.entries)) if at not in gone]
    path = where.pointer.split("/")[1:]
    if where.keyed:
        return _with(value, path, {where.entries[at]: held[where.entries[at]] for at in kept})
    return _with(value, path, Sparse([held[at] for at in kept], kept))


def idle_in(world: World, value: Mapping[str, Any], where: ExclusionList, names: frozenset[str]) -> frozenset[int]:
    """The indices of entries of a list that make no difference to whoever looks up some names.

    None where a list holds what is no text, nor of a file that is the list itself: ModelSlim's names every tensor.
    """
    if not where.present or where.broken or not where.pointer or len(where.entries) < MANY:
        return frozenset()
    if world.numbers is None or not world.numbers.hold(names):
        return frozenset()
    if not where.keyed:
        return apart(world.doubles(where.entries), names)
    held = listed(value, where)
    at = ("doubles", id(held))
    if at not in world.kept:  # the table lives as long as what is known by its id
        world.kept[at] = held, world.doubles(where.entries, [held[entry] for entry in where.entries])
    return apart(world.kept[at][1], names)


def listed(value: Mapping[str, Any], where: ExclusionList) -> Any:
    """What stands in the list's place, None where nothing does."""
    found: Any = value
    for step in where.pointer.split("/")[1:]:
        found = found.get(step)
    return found


def names_asked(asked: Iterable[Sequence[Row]]) -> frozenset[str]:
    """The names that some rows ask for."""
    return frozenset(row.ask.runtime for rows in asked for row in rows if row.ask is not None)


def _decided(
    world: World,
    judge: Judge,
    fragment: Fragment | None,
    rows: Sequence[Row],
    shared: dict[Any, Any] | None = None,
) -> Decided:
    if judge.view is None:
        return ()
    if judge.method.error:
        refused = Answer("error", Cause(rule=judge.method.error), error=judge.method.error)
        return tuple((row, refused) for row in rows)
    if fragment is None:
        return tuple((row, _NO_CONFIG) for row in rows)
    if shared is None:
        shared = shared_under(world, fragment.value, [rows])
    return tuple(zip(rows, judge.answers(world, fragment.value, rows, shared), strict=True))
