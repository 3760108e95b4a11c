"""The frozen values that flow from a source to a report.

Nothing here reads a file or knows an engine. Every value is immutable, so that a later stage can
never change what an earlier one found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from mtpfix.frozen import NamedTuple, dataclass, field, replace

Part = Literal["target", "draft"]
Layer = Literal["linear", "moe", "lm_head", "embedding"]
DecisionKind = Literal["plain", "quantized", "error", "absent", "unknown"]
VerdictKind = Literal["loads", "fails", "degrades", "unsupported", "unknown"]
Severity = Literal["error", "warning", "note"]
FixKind = Literal["safe", "unsafe", "none"]
Status = Literal["clean", "fixable", "partly-fixable", "not-fixable"]
SourceKind = Literal["local", "hub", "bundle"]


class Cell(NamedTuple):
    """One tensor of a module, without its name's front part: `("weight_scale", "F32", (128, 1))`."""

    suffix: str
    dtype: str
    shape: tuple[int, ...]


class Tensor(NamedTuple):
    """A row of a safetensors header and the shard that holds it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a file, found while it was read.

    `place` is a JSON pointer, a tensor name or a byte range, whatever helps to find the spot; `code`
    is a stable kebab-case name such as `duplicate-tensor`.
    """

    code: str
    file: str
    message: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class JsonFile:
    """A JSON file of a checkpoint: its exact bytes and what they parse to."""

    name: str
    raw: bytes
    value: Any


@dataclass(frozen=True, slots=True)
class Source:
    """Where a checkpoint came from."""

    kind: SourceKind
    id: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Shard:
    """A safetensors file: its name, how many tensors its header lists, its size in bytes."""

    name: str
    tensors: int
    size: int


@dataclass(frozen=True, slots=True)
class Index:
    """What `model.safetensors.index.json` says, set against the headers.

    file            name of the index file
    missing_shards  files that the index names and the checkpoint lacks
    ghosts          tensor names that the index lists and no header holds
    unlisted        tensor names that headers hold and the index does not list (in shard order)
    misplaced       tensor names that the index puts in another shard than the one that holds them
    """

    file: str
    missing_shards: tuple[str, ...] = ()
    ghosts: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    misplaced: tuple[str, ...] = ()


class RawModule(NamedTuple):
    """A dotted path and the tensors directly under it, in header order.

    A tensor whose last component is a parameter of its own (`...experts.gate_up_proj`) belongs to the
    path before it, with the component as suffix. `listed` is False where an index exists and
    names none of the files that hold the module's tensors: engines read a file that it names whole, and no other.
    `shard` holds the first tensor; `shards` says where each of them is, in the order of `cells`, or is empty where
    one shard holds them all.
    """

    name: str
    cells: tuple[Cell, ...]
    shard: str
    listed: bool = True
    shards: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Headers and JSON files of one checkpoint; no weights.

    modules     module name -> RawModule, in shard and header order
    files       every JSON file that was read, by name; only files that parsed
    duplicates  tensors that another shard holds, too, or of a module that is stored once more in files that count
    consolidated  what Mistral's `consolidated*.safetensors` hold where they lie beside other files
    """

    source: Source
    modules: Mapping[str, RawModule]
    files: Mapping[str, JsonFile]
    shards: tuple[Shard, ...]
    tensor_count: int
    index: Index | None = None
    duplicates: tuple[Tensor, ...] = ()
    problems: tuple[Problem, ...] = ()
    consolidated: Mapping[str, RawModule] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredScheme:
    """How a module is stored.

    name     `bf16`, `nvfp4`, `fp8-block`, ... (storage/schemes.py has the table) or `odd`
    kind     `plain`; `quantized`; `other` (norms, biases, embeddings' extra state: nothing an engine
             could quantize); `odd` (no signature fits)
    missing  suffixes that the signature needs and the header lacks
    extra    suffixes that belong to no signature (leaked quantizer state, KV scales are not extra)
    note     why `odd`, in words
    """

    name: str
    kind: Literal["plain", "quantized", "other", "odd"]
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class StoredModule:
    """A module as the weights tell it, or a row of experts that are stored alike.

    `shape` is the logical (out, in), () where not a matrix; a 3-D expert stack has (experts, out, in).
    `experts`: the experts of `X.experts.{e}.proj` that share scheme and shape are one value, named after
    the first of them; the ids are listed here, ascending. Empty for every other module.
    """

    name: str
    scheme: StoredScheme
    shape: tuple[int, ...]
    raw: RawModule
    experts: tuple[int, ...] = ()

    @property
    def quantized(self) -> bool:
        return self.scheme.kind == "quantized"

    @property
    def plain(self) -> bool:
        return self.scheme.kind == "plain"


@dataclass(frozen=True, slots=True)
class Cause:
    """What decided: an entry of a list (`pointer` relative to the quantization config) or a rule in words."""

    rule: str = ""
    pointer: str = ""
    entry: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An engine's answer for one runtime name.

    scheme  what the engine allocates when it quantizes (`nvfp4`, `fp8-block`, ...); "" when plain
    error   exception type when `decision` is `error`
    """

    decision: DecisionKind
    cause: Cause
    scheme: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Mapper:
    """A model class's name mapper; None as target means that the rule drops the name.

    Rules keep their order. `kind`-specific semantics belong to the engine that applies them.
    """

    prefix: tuple[tuple[str, str | None], ...] = ()
    substr: tuple[tuple[str, str | None], ...] = ()
    suffix: tuple[tuple[str, str | None], ...] = ()
    regex: tuple[tuple[str, str | None], ...] = ()


Packed = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a JSON file."""

    file: str
    pointer: str


@dataclass(frozen=True, slots=True)
class Edit:
    """One RFC 6902 operation on a file.

    first   an added object member goes before its siblings instead of after them. RFC 6902 knows no
            order, so it shows in the file only: for lists of rules where the first match wins.
    before  an added object member goes before this one, which is there already
    """

    file: str
    op: Literal["add", "remove", "replace"]
    pointer: str
    value: Any = None
    first: bool = False
    before: str | None = None


class Listing(NamedTuple):
    """A name in the index: the file that it is put in, before and after; "" where it is not listed."""

    tensor: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class IndexChange:
    """The index written again from the headers.

    created   whether there is none yet
    listings  every name that comes, goes or moves, in the order in which they are edited
    size      `metadata.total_size` after it, where that changes
    """

    file: str
    listings: tuple[Listing, ...] = ()
    size: int | None = None
    created: bool = False

    @property
    def added(self) -> tuple[Listing, ...]:
        return tuple(row for row in self.listings if not row.before)

    @property
    def removed(self) -> tuple[Listing, ...]:
        return tuple(row for row in self.listings if not row.after)

    @property
    def moved(self) -> tuple[Listing, ...]:
        return tuple(row for row in self.listings if row.before and row.after)


class Rename(NamedTuple):
    """A tensor that gets another name in the header of its shard; what is stored stays."""

    shard: str
    old: str
    new: str
    dtype: str
    shape: tuple[int, ...]


class Contrast(NamedTuple):
    """What is stored set against what engines build: `bf16`, `nvfp4` (or `plain`, `error`, ...), `vllm>=0.25`."""

    stored: str
    built: str
    engines: tuple[str, ...]
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, with evidence, and whether a fix exists.

    contrasts  the modules, those that are stored alike and built alike together, where engines build them
    """

    rule: str
    severity: Severity
    fix: FixKind
    message: str
    hint: str = ""
    part: Part = "draft"
    engines: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    module_count: int = 0
    locations: tuple[Location, ...] = field(default=())
    contrasts: tuple[Contrast, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One row of the verdict matrix: a profile (a range of releases that behave alike) and a part.

    version   first release of the profile
    releases  every release in it, ascending
    latest    whether it holds the newest release of the engine that was asked about
    modules   those that are not loaded as they are stored, every expert by its name; empty when it loads
    error     what the engine prints, in its own words, where it is known
    """

    engine: str
    version: str
    releases: tuple[str, ...]
    latest: bool
    part: Part
    verdict: VerdictKind
    reason: str
    modules: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """What one engine profile decides about one checkpoint module; `stored` is the stored scheme's name."""

    module: str
    part: Part
    engine: str
    version: str
    releases: tuple[str, ...]
    latest: bool
    runtime_name: str
    decision: DecisionKind
    stored: str
    rule: str = ""
    file: str = ""
    pointer: str = ""
    entry: str = ""
    scheme: str = ""


class DecisionRows(Sequence[DecisionRow]):
    """Decisions on modules, one module after the other. Those of a module that others are decided like, as the experts
    of a layer are, are held once: a large checkpoint has more than a million.

    told  a module, and its decisions but for its name
    """

    __slots__ = ("_rows", "told")

    def __init__(self, told: Iterable[tuple[str, Sequence[DecisionRow]]]) -> None:
        self.told = tuple(told)
        self._rows: tuple[DecisionRow, ...] | None = None

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self.told)

    def __iter__(self) -> Iterator[DecisionRow]:
        return (replace(row, module=name) for name, rows in self.told for row in rows)

    def __getitem__(self, at: Any) -> Any:
        self._rows = self._rows or tuple(self)
        return self._rows[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (DecisionRows, tuple)) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Reading(NamedTuple):
    """How a name that a user gave was understood.

    kind     `module`: a name of the checkpoint or a pattern over them; `tensor`: its module is meant; `runtime-name`:
             what engines look modules up by; `holder`: a path with modules below it; `parameter`: nothing of this name
             is stored, the name before its last dot is a module or a runtime name; `namesake`: a module's own name that
             engines look other modules up by as well
    modules  those that are meant; of a `namesake` the others
    engines  of a runtime name: those that use it
    """

    asked: str
    kind: Literal["module", "tensor", "runtime-name", "holder", "parameter", "namesake"]
    modules: tuple[str, ...]
    engines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Decisions on some modules, how the names that asked for them were understood, and why there are no decisions."""

    rows: Sequence[DecisionRow]
    readings: tuple[Reading, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """The draft: what the config declares (the count key's value or None) and what is stored.

    stored   draft layers found in the headers; modules  distinct module paths (experts counted singly)
    """

    declared: int | None
    stored: int
    tensors: int
    dtypes: Mapping[str, int]
    modules: int


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was checked about a plan: numbers a reviewer can repeat.

    decisions  "vllm 0.33.0" -> how many decisions were compared before and after the patch
    newly_plain_quantized  modules that are stored quantized and became plain: always 0 in a plan that is offered
    tensors_renamed  in the headers of shards, whose data stay as they are, byte for byte
    names_listed, names_unlisted  that come into the index (or to another file in it), and that go
    """

    modules: int = 0
    quantized_modules: int = 0
    decisions: Mapping[str, int] = field(default_factory=dict)
    newly_plain_quantized: int = 0
    entries_added: int = 0
    entries_removed: int = 0
    tensors_renamed: int = 0
    names_listed: int = 0
    names_unlisted: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The patch of all chosen fixes.

    edits        RFC 6902 operations in the order in which they apply, per file
    index        the index written again, if it is
    renames      tensors that get another name in the header of their shard
    before/after exact bytes of each JSON file that changes, none of an index that is not there yet
    held_back    fixes that only --unsafe-fixes releases, in words
    source       the checkpoint that it repairs; None as long as nobody asked to apply it
    """

    edits: tuple[Edit, ...] = ()
    before: Mapping[str, bytes] = field(default_factory=dict)
    after: Mapping[str, bytes] = field(default_factory=dict)
    certificate: Certificate = field(default_factory=Certificate)
    held_back: tuple[str, ...] = ()
    source: Source | None = None
    index: IndexChange | None = None
    renames: tuple[Rename, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.edits or self.index or self.renames)

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that changes: JSON files of the format first, then the index, then shards."""
        rest = [self.index.file] if self.index else []
        return tuple(dict.fromkeys([*(edit.file for edit in self.edits), *rest, *(row.shard for row in self.renames)]))


class Ruling(NamedTuple):
    """What an engine decides about a module for a part, what decided it, and what comes of it.

    verdict, why, error  where the module does not load as it is stored; "" where it does
    """

    part: Part
    runtime: str
    decision: DecisionKind
    scheme: str
    rule: str
    file: str
    pointer: str
    entry: str
    verdict: str
    why: str
    error: str


@dataclass(frozen=True, slots=True)
class MapModule:
    """A module, or experts of one kind and layer that are stored alike, and its place on the map.

    layer    path of its layer (`model.layers.45`), "" outside of layers
    kind     what it is in the layer, the same in every layer (`mlp.experts.*.gate_proj`)
    experts  the experts that it stands for, ascending; `tensors` are the first one's
    """

    name: str
    layer: str
    kind: str
    part: Part
    scheme: str
    experts: tuple[int, ...]
    tensors: tuple[Cell, ...]
    listed: bool = True


@dataclass(frozen=True, slots=True)
class Standing:
    """Verdicts, and the rulings on every module of the map, in its order; a module that no part asks for has none."""

    rows: tuple[EngineRow, ...]
    rulings: tuple[tuple[Ruling, ...], ...]


@dataclass(frozen=True, slots=True)
class MapView:
    """Neighbouring releases of one engine that decide alike, as the checkpoint is and as it is after the plan."""

    engine: str
    releases: tuple[str, ...]
    latest: bool
    before: Standing
    after: Standing


@dataclass(frozen=True, slots=True)
class Atlas:
    """Every module that an engine could quantize, and what each engine makes of it."""

    modules: tuple[MapModule, ...]
    views: tuple[MapView, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything `check` knows. `schemes` maps a stored scheme's name to its number of modules.

    configs  where the quantization configs stand
    texts    the bytes of the JSON files that `configs` and the findings point into
    after  the verdict matrix as it is after the plan; empty where the plan has no edits
    atlas  the decisions on every module, where they were asked for
    asked  the engines and releases that alone were asked about, as they were written; empty where none were named
    """

    source: Source
    family: str
    family_reason: str
    format: str
    schemes: Mapping[str, int]
    tensors: int
    shards: int
    draft: Draft
    status: Status
    engines: tuple[EngineRow, ...]
    findings: tuple[Finding, ...]
    plan: Plan
    notes: tuple[str, ...] = ()
    configs: tuple[Location, ...] = ()
    texts: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    after: tuple[EngineRow, ...] = ()
    atlas: Atlas | None = None
    asked: tuple[str, ...] = ()
