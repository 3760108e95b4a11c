"""What an output format is, and the values it is given besides those of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Literal

from mtpfix.frozen import Protocol, dataclass, field
from mtpfix.model import Explanation, Finding, Plan, Report, Source, Tensor


@dataclass(frozen=True)
class Page:
    """What is written on: columns, whether colour codes are welcome, the encoding of the other side, and whether a
    person reads it on a terminal."""

    width: int = 80
    colour: bool = False
    encoding: str = "utf-8"
    terminal: bool = False

    @cached_property
    def unicode(self) -> bool:
        """Whether the other side can show the few symbols that the human output uses."""
        try:
            "✓✗–…×·".encode(self.encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True


class RuleText(Protocol):
    """What an output needs to know of a rule."""

    @property
    def code(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def fix(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def explanation(self) -> str: ...


class TensorRow(Protocol):
    """A tensor of the draft. `declared`: `plain`, `quantized` or what else the config says of its module."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def shard(self) -> str: ...
    @property
    def stored(self) -> str: ...
    @property
    def declared(self) -> str: ...


class OverrideText(Protocol):
    """Serve-time flags for an engine's release, or why there are none."""

    @property
    def engine(self) -> str: ...
    @property
    def release(self) -> str: ...
    @property
    def works(self) -> bool: ...
    @property
    def flags(self) -> tuple[str, ...]: ...
    @property
    def text(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def hint(self) -> str: ...


class PullRequestText(Protocol):
    """A pull request as the Hub lists it."""

    @property
    def num(self) -> int: ...
    @property
    def url(self) -> str: ...
    @property
    def author(self) -> str: ...


class ProposedText(Protocol):
    """What a pull request says of itself."""

    @property
    def title(self) -> str: ...
    @property
    def body(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...


class ProposalText(Protocol):
    """What became of a pull request with a repair. `after`: the report of what it holds, or of the repository."""

    @property
    def kind(self) -> str: ...
    @property
    def repository(self) -> str: ...
    @property
    def revision(self) -> str: ...
    @property
    def pull_request(self) -> PullRequestText | None: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def after(self) -> Report: ...


class FileText(Protocol):
    """A file that changes."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def pointers(self) -> tuple[str, ...]: ...


class DecisionText(Protocol):
    """Modules that an engine decides otherwise."""

    @property
    def engine(self) -> str: ...
    @property
    def part(self) -> str: ...
    @property
    def spans(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def before(self) -> str: ...
    @property
    def after(self) -> str: ...
    @property
    def stored(self) -> str: ...
    @property
    def right(self) -> bool: ...
    @property
    def modules(self) -> tuple[str, ...]: ...


class ReviewText(Protocol):
    """Two versions of a checkpoint, set against each other."""

    @property
    def files(self) -> Sequence[FileText]: ...
    @property
    def decisions(self) -> Sequence[DecisionText]: ...
    @property
    def before(self) -> Report: ...
    @property
    def after(self) -> Report: ...
    @property
    def mended(self) -> tuple[Finding, ...]: ...
    @property
    def left(self) -> tuple[Finding, ...]: ...
    @property
    def new(self) -> tuple[Finding, ...]: ...
    @property
    def newly_plain_quantized(self) -> tuple[str, ...]: ...
    @property
    def only_lists(self) -> bool: ...
    @property
    def effect(self) -> str: ...


class ReviewedText(Protocol):
    """A reviewed pull request."""

    @property
    def pull_request(self) -> PullRequestText: ...
    @property
    def base(self) -> str: ...
    @property
    def head(self) -> str: ...
    @property
    def review(self) -> ReviewText: ...


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of how an engine matches for one method: its name, its first release, where that can be read."""

    method: str
    release: str
    name: str
    source: str


@dataclass(frozen=True, slots=True)
class Profile:
    """A range of releases that match alike for a method, what changed at its start, and how many decisions that the
    engine's own code made in it the model was held to."""

    method: str
    first: str
    last: str
    recorded: int
    changes: tuple[ChangePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is modelled of an engine."""

    name: str
    releases: tuple[str, ...]
    changes: tuple[ChangePoint, ...] = ()
    profiles: tuple[Profile, ...] = ()


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A recorded decision that the model answers differently: where it stands, what was asked, both answers."""

    place: str
    engine: str
    method: str
    release: str
    runtime: str
    recorded: str
    modelled: str
    why: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """Recorded decisions put to the models, by engine, method and release; `skipped`: of engines without a model."""

    disagreements: tuple[Disagreement, ...]
    checked: Mapping[tuple[str, str, str], int]
    skipped: int


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Reports in the order of their sources.

    several  more than one source was asked for
    unread   what is wrong with those that cannot be inspected
    """

    reports: tuple[Report, ...]
    rules: Mapping[str, RuleText] = field(default_factory=dict)
    several: bool = False
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """A repair, made or planned, or why there is none.

    outcome     `done`, `planned`, `nothing` (to change), `declined` (by who was asked)
    report      the checkpoint as it was found
    afterwards  the checkpoint as it is now, where it was changed
    """

    outcome: Literal["done", "planned", "nothing", "declined"]
    report: Report
    afterwards: Report | None = None
    files: tuple[str, ...] = ()
    diff: str = ""
    rules: Mapping[str, RuleText] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TensorList:
    """The draft's tensors; `every`: one line for each, none collapsed."""

    rows: tuple[TensorRow, ...]
    every: bool = False


@dataclass(frozen=True, slots=True)
class GraftedTensor:
    """A tensor from the base: as what it is written, the base's shard, the base's scheme, why it is needed."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: str
    stored: str
    why: str


@dataclass(frozen=True, slots=True)
class Grafted:
    """A graft, done or planned, or why there is none.

    status     `done`, `planned`, `nothing`, `refused`: planned, and not written as it was asked for
    size       of the new shard; `written`: bytes that are written with it
    diff       of the config files
    replaced   the checkpoint's own tensors that the new ones take the place of, and whether engines still read them
    report     the checkpoint afterwards
    """

    directory: str
    base: Source
    status: Literal["done", "planned", "nothing", "refused"]
    report: Report
    reason: str = ""
    shard: str = ""
    size: int = 0
    written: int = 0
    tensors: tuple[GraftedTensor, ...] = ()
    replaced: tuple[tuple[Tensor, bool], ...] = ()
    rewritten: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    plan: Plan = field(default_factory=Plan)
    diff: str = ""
    rules: Mapping[str, RuleText] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleList:
    """Rules to show; `whole`: with their explanations."""

    rules: tuple[RuleText, ...]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Symptom:
    """A line of an engine's log: what it means, the rules that it can come from (most likely first), its source."""

    line: str
    means: str
    rules: tuple[RuleText, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Format:
    """A format and what it can write. Every writer gives the whole text, its last line end included, or "".

    load      imports what it writes with, which else the first writer does
    uploaded  another program reads it and decides what fails: findings leave the exit code at 0
    mapped    it shows the decisions on every module: the reports need their atlas
    unread    it says which sources cannot be inspected, also where none can
    """

    name: str
    check: Callable[[CheckResult, Page], str]
    explain: Callable[[Explanation, Page], str] | None = None
    tensors: Callable[[TensorList, Page], str] | None = None
    rules: Callable[[RuleList, Page], str] | None = None
    symptoms: Callable[[tuple[Symptom, ...], Page], str] | None = None
    engines: Callable[[tuple[EngineFacts, ...], Page], str] | None = None
    replayed: Callable[[Replayed, Page], str] | None = None
    override: Callable[[OverrideText, Page], str] | None = None
    graft: Callable[[Grafted, Page], str] | None = None
    uploaded: bool = False
    mapped: bool = False
    unread: bool = False
    load: Callable[[], object] = lambda: None
