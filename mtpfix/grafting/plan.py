"""What a graft does, decided before a byte is copied. Pure.

The checkpoint as it will be is put together from headers and JSON files and goes through the same analysis as any
other: that gives the entries to add, and tells whether engines can load what comes out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mtpfix import analysis
from mtpfix.checkpoint.headers import LENGTH_BYTES, decode
from mtpfix.checkpoint.index import MISTRAL_INDEX, index_name
from mtpfix.checkpoint.jsonfiles import CONFIG
from mtpfix.checkpoint.reading import read_checkpoint
from mtpfix.checkpoint.recorded import Held, Packed, packed
from mtpfix.errors import RefusedError
from mtpfix.frozen import NamedTuple, dataclass, field, replace
from mtpfix.grafting import fp8, loaders
from mtpfix.grafting.fit import misfits
from mtpfix.grafting.index import indexed
from mtpfix.grafting.layout import Layout, Rewrite, Row, new_file, without
from mtpfix.grafting.select import Choice, choices
from mtpfix.model import Checkpoint, Edit, Plan, Report, Source, Tensor
from mtpfix.names import split_name
from mtpfix.output.text import listed, plural
from mtpfix.planning import editable
from mtpfix.splice import splice
from mtpfix.storage.modules import tensors_of
from mtpfix.world import World, world_of

_SHOWN = 3
_METADATA = {"format": "pt"}
_KNOWN = ("loads", "degrades", "fails")


@dataclass(frozen=True, slots=True)
class Read:
    """A checkpoint, and its files as they were read."""

    checkpoint: Checkpoint
    held: Held


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for besides the two checkpoints."""

    modules: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    scope: analysis.Scope = "mtp"
    dequantize: bool = False
    rewrite: bool = False


@dataclass(frozen=True, slots=True)
class Widening:
    """An FP8 weight that becomes BF16: how, and where its scales are in the base (shard, start, end)."""

    recipe: fp8.Recipe
    scales: tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the data of a row of the new shard comes from: bytes [start, end) of one of the base's shards."""

    row: Row
    shard: str
    start: int
    end: int
    widening: Widening | None = None


@dataclass(frozen=True, slots=True)
class OldCopy:
    """A tensor of the checkpoint that is replaced. `read`: engines go on reading it, since they open its shard."""

    tensor: Tensor
    read: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a graft that can be shown is not written, and what to do."""

    message: str
    subject: str
    hint: str


@dataclass(frozen=True, slots=True)
class GraftPlan:
    """A graft.

    reason     why there is nothing to graft, or ""
    refusal    why it is not written without `rewrite`, with which the rest of the plan is made then
    lacking    modules that are needed and that the base does not hold
    shard      the new file; `layout` and `origins` say what is in it
    rewrites   shards that are written again without their old copies; `removed` ones go
    before     the JSON files as they are, None for one that is not there; `after` as they will be
    repair     the edits of the configs, with their certificate
    report     what will be said of the checkpoint afterwards
    notes      what a person should know
    """

    here: Source
    base: Source
    reason: str = ""
    chosen: tuple[Choice, ...] = ()
    lacking: tuple[str, ...] = ()
    shard: str = ""
    layout: Layout | None = None
    origins: tuple[Origin, ...] = ()
    old: tuple[OldCopy, ...] = ()
    rewrites: Mapping[str, Rewrite] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    before: Mapping[str, bytes | None] = field(default_factory=dict)
    after: Mapping[str, bytes] = field(default_factory=dict)
    repair: Plan = field(default_factory=Plan)
    report: Report | None = None
    notes: tuple[str, ...] = ()
    refusal: Refusal | None = None

    def require(self) -> None:
        """Raises RefusedError for a graft that is not written as it was asked for."""
        found = self.refusal
        if found:
            raise RefusedError(found.message, subject=found.subject, hint=found.hint)

    @property
    def size(self) -> int:
        """Bytes that are written anew."""
        new = self.layout.size if self.layout else 0
        return new + sum(rewrite.layout.size for rewrite in self.rewrites.values())

    @property
    def fetched(self) -> int:
        """Bytes that have to come from the Hub first."""
        return sum(row.end - row.start for row in self.origins) if self.base.kind == "hub" else 0


def plan(here: Read, base: Read, asked: Asked) -> GraftPlan:
    """The graft of a base's draft; without a layout where there is nothing to do.

    Raises RefusedError where the base does not fit, or where what comes out would be no better, UsageError for a
    pattern that no draft module matches or an engine that is not modelled.
    """
    own, theirs = world_of(here.checkpoint), world_of(base.checkpoint)
    _refuse_misfit(own, theirs)
    before = analysis.analyse(here.checkpoint, engines=asked.engines, scope=asked.scope)
    chosen, lacking = choices(own, theirs, before.findings, asked.modules)
    sources = here.checkpoint.source, base.checkpoint.source
    if own.declared == 0 and not asked.modules:
        why = (
            f"the config declares no draft layers ({_count_keys(own)} is 0); --modules '**' restores them all the same"
        )
        return GraftPlan(*sources, reason=why, report=before)
    if not chosen:
        return GraftPlan(*sources, reason=_nothing(own, theirs, lacking), lacking=lacking, report=before)
    found = _Graft(here, base, own, theirs, chosen, asked)
    refusal = found.refusal()
    if refusal:  # what it is with --rewrite; where that would be refused, too, it is no advice
        found = _Graft(here, base, own, theirs, chosen, replace(asked, rewrite=True))
    found.analyse()
    found.refuse_harm(before)
    return found.plan(lacking, refusal)


def _refuse_misfit(own: World, theirs: World) -> None:
    found = misfits(own, theirs)
    if found:
        rest = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise RefusedError(
            f"{theirs.checkpoint.source.id} is not the base of {own.checkpoint.source.id}, they differ in "
            + "; ".join(found[:_SHOWN])
            + rest,
            subject=theirs.checkpoint.source.id,
            hint="give the checkpoint that this one was quantized from; a pruned model needs the draft of its own",
        )


def _nothing(own: World, theirs: World, lacking: Sequence[str]) -> str:
    if not theirs.draft_modules:
        return f"{theirs.checkpoint.source.id} holds no draft either"
    if lacking:
        return f"{theirs.checkpoint.source.id} does not hold what is lacking, e.g. {lacking[0]}"
    if not all(raw.listed for raw in own.draft_modules):
        return "all tensors of the draft are stored, but the index does not list them"
    return "the checkpoint lacks no tensor of the draft and stores none wrongly"


def _count_keys(world: World) -> str:
    return " or ".join(world.family.count_keys) if world.family else ""


class _Graft:
    """One graft put together: what is in the new shard, what goes, and the checkpoint that comes out."""

    def __init__(
        self, here: Read, base: Read, own: World, theirs: World, chosen: Sequence[Choice], asked: Asked
    ) -> None:
        self.here, self.base, self.own, self.theirs, self.asked = here, base, own, theirs, asked
        self.chosen = tuple(chosen)
        self.index = self._index_name()
        self.recipes = {} if not asked.dequantize else self._recipes()
        replaced = [tensor for choice in chosen for tensor in choice.replaced]
        names = {tensor.name for tensor in replaced}
        copies = (tensor for tensor in here.checkpoint.duplicates if tensor.name in names)
        self.dropped = tuple(dict.fromkeys([*replaced, *copies]))
        self.shard, self.stale = self._new_shard()
        rows = [(tensor.name, tensor.dtype, tensor.shape) for tensor in self._new_tensors()]
        self.layout = new_file(rows, _METADATA)
        self.old = tuple(OldCopy(tensor, tensor.shard not in self.stale) for tensor in self.dropped)
        self.rewrites = self._rewrites()
        self.removed = tuple(sorted(self.stale)) if asked.rewrite else ()
        self.jsons = {**self._counted(), self.index: self._new_index()}

    # What is in the new shard.

    def _recipes(self) -> dict[str, dict[str, fp8.Recipe]]:
        found = {}
        for choice in self.chosen:
            if choice.scheme and choice.scheme.kind == "quantized":
                recipes = fp8.recipes_for(self.theirs.checkpoint.modules[choice.name].cells)
                if recipes is None:
                    name, scheme = self.theirs.checkpoint.source.id, choice.scheme.name
                    raise RefusedError(
                        f"{name} stores {choice.name} as {scheme}, which cannot be dequantized",
                        subject=choice.name,
                        hint="only FP8 weights with a scale a tensor, row, column or block can; give a base in BF16",
                    )
                found[choice.name] = recipes
        return found

    def _new_tensors(self) -> Iterator[Tensor]:
        """The rows of the new shard, with the base's shards."""
        for choice in self.chosen:
            recipes = self.recipes.get(choice.name, {})
            for tensor in choice.tensors:
                suffix = split_name(tensor.name)[1]
                if suffix in recipes:
                    yield tensor._replace(dtype="BF16")
                elif not recipes or not fp8.is_scale(suffix):
                    yield tensor

    def origins(self) -> tuple[Origin, ...]:
        """Where each row's data comes from."""
        named = {tensor.name: tensor for choice in self.chosen for tensor in choice.tensors}
        places = self._places({tensor.shard for tensor in named.values()})
        out = []
        for row in self.layout.rows:
            module, suffix = split_name(row.name)
            shard = named[row.name].shard
            recipe, widening = self.recipes.get(module, {}).get(suffix), None
            if recipe is not None:
                scale = named[f"{module}.{recipe.scale}"]
                widening = Widening(recipe, (scale.shard, *places[scale.shard, scale.name]))
            out.append(Origin(row, shard, *places[shard, row.name], widening))
        return tuple(out)

    def _places(self, shards: Iterable[str]) -> dict[tuple[str, str], tuple[int, int]]:
        found = {}
        for shard in shards:
            kept = self.base.held.shards[shard]
            header, size = kept.header, kept.size
            data = LENGTH_BYTES + len(header)
            for entry in decode(header, size - data, shard):
                found[shard, entry.name] = data + entry.start, data + entry.end
        return found

    # Where it lies, and what goes.

    def _index_name(self) -> str:
        name = index_name([shard.name for shard in self.here.checkpoint.shards])
        if name == MISTRAL_INDEX:
            raise RefusedError(
                f"{self.here.checkpoint.source.id}: its weights are consolidated*.safetensors, which engines read by "
                "other rules",
                subject=self.here.checkpoint.source.id,
                hint="graft into a checkpoint whose weights are model*.safetensors",
            )
        return name

    def _new_shard(self) -> tuple[str, frozenset[str]]:
        """The name of the new shard, and the shards that the index will name no longer."""
        gone = {tensor.name for tensor in self.dropped}
        modules = self.here.checkpoint.modules.values()
        tensors = [tensor for raw in modules if raw.listed for tensor in tensors_of(raw)]
        read = {tensor.shard for tensor in tensors if tensor.name not in gone}
        stale = frozenset(tensor.shard for tensor in self.dropped) - read
        taken = {*self.here.held.listed, *read}
        return loaders.last_name(taken, read), stale

    def _rewrites(self) -> dict[str, Rewrite]:
        shards = sorted({copy.tensor.shard for copy in self.old if copy.read}) if self.asked.rewrite else ()
        out = {}
        for shard in shards:
            if "/" in shard:
                raise RefusedError(
                    f"{shard}: only files of the top folder are rewritten",
                    subject=shard,
                    hint="move the shards into the top folder, or leave out --rewrite",
                )
            names = {copy.tensor.name for copy in self.old if copy.tensor.shard == shard}
            kept = self.here.held.shards[shard]
            out[shard] = without(kept.header, kept.size, shard, names)
        return out

    def refusal(self) -> Refusal | None:
        """Why old copies cannot be left where they are: vLLM or SGLang would stop on them, or load them last."""
        if self.asked.rewrite:
            return None
        new = {tensor.name: tensor for tensor in self._new_tensors()}
        unlike = [copy.tensor for copy in self.old if copy.read and not _alike(copy.tensor, new.get(copy.tensor.name))]
        unasked = {shard for shard in self.stale if loaders.is_added_unasked(shard, self.own.architectures)}
        found = unlike or [copy.tensor for copy in self.old if copy.tensor.shard in unasked]
        if not found:
            return None
        first, where = found[0], listed(sorted({tensor.shard for tensor in found}))
        what = f"{plural(len(found), 'old tensor')}, e.g. {first.name} ({first.dtype} {list(first.shape)})"
        why = loaders.UNLIKE if unlike else loaders.UNASKED
        done = f"writes {where} again without them" if unlike else f"removes {where}"
        return Refusal(f"{what}, would stay in {where}. {why}", where, f"add --rewrite: it {done}")

    # The JSON files.

    def _new_index(self) -> bytes:
        raw = self.here.held.jsons.get(self.index)
        held = self.here.checkpoint
        missing = frozenset(held.index.missing_shards) if held.index else frozenset()
        mapped = held.files[self.index].value["weight_map"] if missing else {}
        bogus = [name for name, drafted in self.own.lost.items() if drafted and mapped.get(name) in missing]
        added = {row.name: Tensor(row.name, row.dtype, row.shape, self.shard) for row in self.layout.rows}
        return indexed(raw, held.modules, added, self.dropped, bogus)

    def _counted(self) -> dict[str, bytes]:
        """config.json with the base's number of draft layers, where it says none and that many will be stored."""
        wanted = self.theirs.declared
        if self.own.declared or not wanted:
            return {}
        theirs, mine = self.theirs.count_pointers, self.own.count_pointers
        edits = [Edit(CONFIG, "replace" if place in mine else "add", place, wanted) for place in theirs]
        return {CONFIG: splice(self.here.held.jsons[CONFIG], edits)}

    # What comes out.

    def analyse(self) -> None:
        """The entries that the lists need, and the report on what comes out."""
        written = {self.shard: self.layout, **{name: rewrite.layout for name, rewrite in self.rewrites.items()}}
        shards: dict[str, Packed | None] = {name: packed(made.header, made.size) for name, made in written.items()}
        shards |= dict.fromkeys(self.removed)
        files = self.here.held.changed(self.jsons, shards)
        checkpoint = read_checkpoint(self.here.checkpoint.source, files)
        first = analysis.analyse(checkpoint, engines=self.asked.engines, scope=self.asked.scope)
        self.repair, self.report = first.plan, first
        if first.plan.edits:
            checkpoint = analysis.repaired(checkpoint, first.plan.after)
            self.report = analysis.analyse(checkpoint, engines=self.asked.engines, scope=self.asked.scope)

    def harm(self, before: Report) -> Harm | None:
        """The first engine release that loads a part worse than before."""
        old = _verdicts(before)
        for (engine, release, part), verdict in _verdicts(self.report).items():
            was = old.get((engine, release, part), "")
            worse = was == "loads" or (part == "target" and (was, verdict) == ("degrades", "fails"))
            if verdict in _FALLS and worse:
                return Harm(engine, release, part, was, verdict)
        return None

    def refuse_harm(self, before: Report) -> None:
        """Refuse a graft after which an engine loads a part worse than before, or none loads the draft."""
        quantized = sorted({c.scheme.name for c in self.chosen if c.scheme and c.scheme.kind == "quantized"})
        as_stored = f"{self.theirs.checkpoint.source.id} stores its draft as {', '.join(quantized)}"
        hint = "give a base in BF16"
        if quantized and not self.recipes and self._can_widen():
            hint = "add --dequantize: it grafts the draft in BF16"
        if quantized and not self.recipes and self._blocks_differ():
            raise RefusedError(f"{as_stored}, in blocks of another size than the config here says", hint=hint)
        harmed = self.harm(before)
        if harmed:
            engine, release, part, was, verdict = harmed
            raise RefusedError(
                f"with the graft {engine} {release} would {_FALLS[verdict]} the {part}, and now it {_STANDS[was]}",
                subject=self.theirs.checkpoint.source.id,
                hint=hint
                if quantized and not self.recipes
                else "name the engines that you serve with, if it is none of them: --engine vllm",
            )
        drafts = [row for row in self.report.engines if row.part == "draft"]
        known = [row for row in drafts if row.verdict in _KNOWN]
        if known and not self.asked.modules and not any(row.verdict == "loads" for row in known):
            worst = next((row for row in known if row.latest), known[0])
            why = f"no engine could load the grafted draft: {worst.engine} {worst.version}: {worst.reason}"
            raise RefusedError(
                f"{as_stored}; {why}" if quantized and not self.recipes else why,
                subject=self.theirs.checkpoint.source.id,
                hint=hint if quantized and not self.recipes else "",
            )

    def _can_widen(self) -> bool:
        modules = self.theirs.checkpoint.modules
        names = [c.name for c in self.chosen if c.scheme and c.scheme.kind == "quantized"]
        return all(fp8.recipes_for(modules[name].cells) for name in names)

    def _blocks_differ(self) -> bool:
        sizes = [_block_size(world) for world in (self.own, self.theirs)]
        return None not in sizes and sizes[0] != sizes[1]

    def plan(self, lacking: tuple[str, ...], refusal: Refusal | None) -> GraftPlan:
        old = self.here.held.jsons
        after = {**self.jsons, **self.repair.after}
        order = sorted(after, key=lambda name: name == self.index)
        return GraftPlan(
            here=self.here.checkpoint.source,
            base=self.base.checkpoint.source,
            chosen=self.chosen,
            lacking=lacking,
            shard=self.shard,
            layout=self.layout,
            origins=self.origins(),
            old=self.old,
            rewrites=self.rewrites,
            removed=self.removed,
            before={name: old.get(name) for name in order},
            after={name: after[name] for name in order},
            repair=self.repair,
            report=self.report,
            notes=tuple(self._notes()),
            refusal=refusal,
        )

    def _notes(self) -> Iterator[str]:
        stored = Counter(c.scheme.name for c in self.chosen if c.scheme and c.scheme.kind == "quantized")
        for scheme, count in sorted(stored.items()):
            done = "dequantized to BF16" if self.recipes else "grafted as the base stores them"
            yield f"{count} modules are {scheme} in the base: {done}"
        if self.asked.rewrite:
            return
        new = {tensor.name: tensor for tensor in self._new_tensors()}
        left = [copy for copy in self.old if copy.read and _alike(copy.tensor, new.get(copy.tensor.name))]
        if left:
            kept = (
                "1 old copy of the same shape stays"
                if len(left) == 1
                else f"{len(left)} old copies of the same shape stay"
            )
            yield f"{kept} in files that engines read. {loaders.after(self.shard)}; --rewrite removes what is old"
        if self.stale:
            names = listed(sorted(self.stale))
            yield f"{names}: no longer named by the index. {loaders.UNNAMED}; --rewrite removes what is old"


_STANDS = {"loads": "loads", "degrades": "loads wrongly"}
_FALLS = {"fails": "fail to load", "degrades": "load wrongly"}


class Harm(NamedTuple):
    """A part that a release loads worse than before."""

    engine: str
    release: str
    part: str
    was: str
    verdict: str


def _alike(old: Tensor, new: Tensor | None) -> bool:
    return new is not None and (old.dtype, old.shape) == (new.dtype, new.shape)


def _verdicts(report: Report) -> dict[tuple[str, str, str], str]:
    return {(row.engine, release, row.part): row.verdict for row in report.engines for release in row.releases}


def _block_size(world: World) -> object:
    fragment = next(iter(editable(world.files)), None)
    return fragment.value.get("weight_block_size") if fragment else None
