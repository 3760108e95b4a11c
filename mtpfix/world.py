"""What does not change while configs are judged: a checkpoint's modules, its family, its JSON files as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, compress
from typing import Any, TypeVar

from mtpfix import releases
from mtpfix.alike import NONE, Alike, alike, is_literal
from mtpfix.checkpoint.limits import check_draft, check_judged
from mtpfix.engines import openings
from mtpfix.engines.base import Dtypes
from mtpfix.engines.sources import CONFIG, DESCRIPTION, config_fragments, description_fragment, sidecar_fragment
from mtpfix.families import identify
from mtpfix.families.base import (
    TEXT_CONFIGS,
    Family,
    condition_texts,
    config_value,
    expert_count,
    is_draft,
    numbers_of,
    router_rows,
    texts_of,
    whole_number,
)
from mtpfix.families.patterns import Key, key_of
from mtpfix.families.plugins import with_plugin
from mtpfix.formats import format_of
from mtpfix.formats.base import ExclusionList
from mtpfix.frozen import dataclass
from mtpfix.idle import MANY, Doubles, Numbers, doubles, numbers_in, runs_of
from mtpfix.model import Checkpoint, Index, JsonFile, Part, RawModule, StoredModule
from mtpfix.modules import EXPERTS, within
from mtpfix.names import split_name, tensor_name
from mtpfix.patch import put
from mtpfix.storage.expert_counts import FewExperts, MoreExperts, few_experts, more_experts
from mtpfix.storage.lacking import Members, lacking
from mtpfix.storage.layer_types import KEY as LAYER_TYPES
from mtpfix.storage.layer_types import LayerTypes, contradiction
from mtpfix.storage.modules import stored_modules
from mtpfix.storage.routers import OddRouter, odd_router

Found = TypeVar("Found")

# The draft's projections that no layer holds, each with those that stand in its stead in some families.
_PROJECTIONS: Mapping[str, tuple[str, ...]] = {
    "mtp.fc": ("mtp.fc_embedding", "mtp.fc_hidden"), "pre_projection": (), "post_projection": (),
}  # fmt: skip
# Formats whose entries no engine takes for regular expressions, unless they start with `re:`.
_GLOBS = frozenset({"modelopt", "compressed-tensors", "quark"})
# What vLLM's Transformers backend counts draft layers by (vllm-0.33.0 config/speculative.py:1385), and no model class.
OTHERS_COUNT = "num_mtp_layers"
# Whether an engine opens every file, which ones though the index does not name them, no file in folders below, and
# Mistral's own copies alone.
Opens = tuple[bool, tuple[str, ...], bool, bool]


@lru_cache(maxsize=1 << 10)
def _experts(name: str, numbers: tuple[int, ...]) -> tuple[str, ...]:
    """The names that experts of these numbers have in the place of the one named."""
    head, marker, rest = name.partition(EXPERTS)
    tail = rest.partition(".")[2]
    return tuple([f"{head}{marker}{number}.{tail}" for number in numbers])


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
    def tied(self) -> bool:
        """Whether the embedding is the head too: the config says so, and no head is stored."""
        if config_value(self.config, ("tie_word_embeddings",)) is not True:
            return False
        return not any(name.rpartition(".")[2] == "lm_head" for name in self.checkpoint.modules)

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

    @cached_property
    def odd_routers(self) -> Mapping[Part, OddRouter]:
        """The first router of each part that has not as many rows as the config makes engines build."""
        experts = self.family.experts if self.family else None
        rows = router_rows(self.config, experts) if experts else None
        if experts is None or rows is None:
            return {}
        odd = {
            part: odd_router((unit.stored for unit in units), experts.router, rows, experts.key)
            for part, units in self.by_part.items()
        }
        return {part: router for part, router in odd.items() if router}

    @cached_property
    def few_experts(self) -> Mapping[Part, FewExperts]:
        """The first experts of each part that are missing among those that the config counts."""
        return dict(self._against_the_count(few_experts))

    @cached_property
    def more_experts(self) -> Mapping[Part, MoreExperts]:
        """The first experts of each part beyond those that the config counts."""
        return dict(self._against_the_count(more_experts))

    def _against_the_count(
        self, look: Callable[[Mapping[str, Members], int, str], Found | None]
    ) -> Iterator[tuple[Part, Found]]:
        experts = self.family.experts if self.family else None
        counted = expert_count(self.config, experts) if experts else None
        for part in self.by_part if experts and counted else ():
            found = look(self._members[part], counted or 0, experts.key if experts else "")
            if found is not None:
                yield part, found

    @cached_property
    def _members(self) -> Mapping[Part, Mapping[str, Members]]:
        return {"target": self._target_members, "draft": _members_of(self.by_part["draft"])}

    def pointers(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Where config.json holds one of some keys: the top level, then the text configs."""
        return tuple(pointers_of(self.config, tuple(keys)))

    @cached_property
    def config_as_stored(self) -> Mapping[str, Any]:
        """config.json's value with draft counts that say how many layers are stored; the value itself where they do."""
        value = self.config
        if self.declared is not None and self.stored_layers and self.declared != self.stored_layers:
            for place in self.count_pointers:
                value = put(value, place.split("/")[1:], self.stored_layers)
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
