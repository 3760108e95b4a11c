"""The documents of JSON, version 1, as types; `schema_v1.json` says the same to everybody else.

Keys may be added within version 1; none is renamed, removed or given another meaning.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class SourceV1(TypedDict):
    kind: str
    id: str
    revision: str | None


class DraftV1(TypedDict):
    declared: int | None
    stored: int
    tensors: int
    dtypes: dict[str, int]
    modules: int


class CheckpointV1(TypedDict):
    family: str
    format: str
    schemes: dict[str, int]
    tensors: int
    shards: int
    draft: DraftV1


class EngineV1(TypedDict):
    engine: str
    version: str
    releases: list[str]
    latest: bool
    part: str
    verdict: str
    reason: str
    modules: list[str]
    error: str


class LocationV1(TypedDict):
    file: str
    pointer: str


class ContrastV1(TypedDict):
    stored: str
    built: str
    engines: list[str]
    modules: list[str]


class FindingV1(TypedDict):
    rule: str
    name: str
    kind: str
    severity: str
    fix: str
    message: str
    hint: str
    engines: list[str]
    modules: list[str]
    module_count: int
    locations: list[LocationV1]
    contrasts: list[ContrastV1]


class CertificateV1(TypedDict):
    modules: int
    quantized_modules: int
    decisions: dict[str, int]
    newly_plain_quantized: int
    entries_added: int
    entries_removed: int
    tensors_renamed: int
    names_listed: int
    names_unlisted: int


class ListingV1(TypedDict):
    names: list[str]
    count: int
    before: str | None
    after: str | None


class IndexV1(TypedDict):
    file: str
    created: bool
    changes: list[ListingV1]
    total_size: int | None
    sha256: str


class RenameV1(TypedDict):
    shard: str
    names: list[str]
    count: int
    before: str
    after: str


class PlanV1(TypedDict):
    """`index` and `renames` stand for changes of which RFC 6902 would make a line a tensor: names are in brace form."""

    files: dict[str, list[dict[str, Any]]]
    certificate: CertificateV1
    held_back: list[str]
    index: IndexV1 | None
    renames: list[RenameV1]


class ReportV1(TypedDict):
    """What `check` says of one source; `after`: its `engines` with the plan, none without one."""

    schema_version: Literal[1]
    mtpfix: str
    source: SourceV1
    checkpoint: CheckpointV1
    status: str
    engines: list[EngineV1]
    findings: list[FindingV1]
    plan: PlanV1
    notes: list[str]
    after: list[EngineV1]


class EntryCauseV1(TypedDict):
    file: str
    pointer: str
    entry: str


class RuleCauseV1(TypedDict):
    rule: str


class DecisionV1(TypedDict):
    module: str
    part: str
    engine: str
    version: str
    releases: list[str]
    latest: bool
    runtime_name: str
    decision: str
    decided_by: EntryCauseV1 | RuleCauseV1
    stored: str


class ReadingV1(TypedDict):
    asked: str
    kind: str
    modules: list[str]
    engines: list[str]


class ExplanationV1(TypedDict):
    """What `explain` says; `understood`: what it took each name for, `reason`: why no decision is known."""

    schema_version: Literal[1]
    decisions: list[DecisionV1]
    understood: list[ReadingV1]
    reason: str


class TensorV1(TypedDict):
    name: str
    dtype: str
    shape: list[int]
    shard: str
    stored: str
    declared: str


class TensorsV1(TypedDict):
    """What `list` says."""

    schema_version: Literal[1]
    tensors: list[TensorV1]


class RuleV1(TypedDict):
    code: str
    name: str
    kind: str
    severity: str
    fix: str
    summary: str
    explanation: str


class RulesV1(TypedDict):
    """What `rule` says."""

    schema_version: Literal[1]
    rules: list[RuleV1]


class SymptomV1(TypedDict):
    line: str
    means: str
    rules: list[str]
    source: str


class SymptomsV1(TypedDict):
    """What `rule --error` says; the rules are codes, most likely first."""

    schema_version: Literal[1]
    symptoms: list[SymptomV1]


class ChangeV1(TypedDict):
    release: str
    name: str
    source: str


class ProfileV1(TypedDict):
    first: str
    last: str
    recorded: int
    changes: list[str]


class EngineFactsV1(TypedDict):
    engine: str
    releases: list[str]
    changes: dict[str, list[ChangeV1]]
    profiles: dict[str, list[ProfileV1]]


class EnginesV1(TypedDict):
    """What `engines` says; `changes` maps a quantization method to the releases that changed its matching, `profiles`
    to the ranges of releases that match alike."""

    schema_version: Literal[1]
    engines: list[EngineFactsV1]


class DisagreementV1(TypedDict):
    place: str
    engine: str
    method: str
    release: str
    runtime: str
    recorded: str
    modelled: str
    why: str


class ReplayV1(TypedDict):
    """What `engines --replay` says; `checked` maps engine, method and release to a number of recorded decisions."""

    schema_version: Literal[1]
    checked: dict[str, dict[str, dict[str, int]]]
    skipped: int
    disagreements: list[DisagreementV1]


class PullRequestV1(TypedDict):
    num: int
    url: str
    author: str


class GraftedTensorV1(TypedDict):
    name: str
    dtype: str
    shape: list[int]
    shard: str
    stored: str
    why: str


class ReplacedTensorV1(TypedDict):
    name: str
    dtype: str
    shape: list[int]
    shard: str
    read: bool


class GraftV1(TypedDict):
    """What `graft` says; `status` of the checkpoint is that of `report`, afterwards."""

    schema_version: Literal[1]
    outcome: Literal["done", "planned", "nothing", "refused"]
    directory: str
    base: SourceV1
    reason: str
    shard: str
    size: int
    written: int
    tensors: list[GraftedTensorV1]
    replaced: list[ReplacedTensorV1]
    rewritten: list[str]
    removed: list[str]
    lacking: list[str]
    notes: list[str]
    files: list[str]
    plan: PlanV1
    report: ReportV1


class AppliedV1(TypedDict):
    """What `apply` says; `report`: the checkpoint as it was found, `afterwards`: what it is now, if it changed."""

    schema_version: Literal[1]
    outcome: Literal["done", "planned", "nothing", "declined"]
    files: list[str]
    diff: str
    report: ReportV1
    afterwards: ReportV1 | None


class ProposalV1(TypedDict):
    """What `apply --create-pr` says; `status` is that of what the pull request holds, or of the repository."""

    schema_version: Literal[1]
    outcome: str
    repository: str
    revision: str
    pull_request: PullRequestV1 | None
    fingerprint: str
    reason: str
    status: str


class PreviewV1(TypedDict):
    """What `apply --create-pr --dry-run` says."""

    schema_version: Literal[1]
    outcome: Literal["would-open"]
    repository: str
    revision: str
    fingerprint: str
    title: str
    description: str
    diff: str
    status: str


class FileChangeV1(TypedDict):
    name: str
    kind: str
    pointers: list[str]


class SpanV1(TypedDict):
    first: str
    last: str


class DecisionChangeV1(TypedDict):
    engine: str
    part: str
    releases: list[SpanV1]
    before: str
    after: str
    stored: str
    right: bool
    modules: list[str]


class FindingOfV1(TypedDict):
    rule: str
    part: str
    message: str


class FindingsOfV1(TypedDict):
    mended: list[FindingOfV1]
    left: list[FindingOfV1]
    new: list[FindingOfV1]


class StatusesV1(TypedDict):
    before: str
    after: str


class ReviewV1(TypedDict):
    """What `review` says."""

    schema_version: Literal[1]
    repository: str
    pull_request: PullRequestV1
    base: str
    head: str
    effect: str
    only_lists: bool
    files: list[FileChangeV1]
    decisions: list[DecisionChangeV1]
    newly_plain_quantized: list[str]
    findings: FindingsOfV1
    status: StatusesV1


class EntriesV1(TypedDict):
    added: int
    removed: int


class ScanRowV1(TypedDict):
    """What `scan` says of a repository; `engines` maps an engine to the verdicts of its newest release in the scan."""

    schema_version: Literal[1]
    mtpfix: str
    repository: str
    revision: str | None
    status: str
    family: str
    format: str
    findings: dict[str, int]
    warnings: dict[str, int]
    engines: dict[str, dict[str, str]]
    entries: EntriesV1


class UnreadableRowV1(TypedDict):
    """What `scan` says of a repository that could not be inspected."""

    schema_version: Literal[1]
    mtpfix: str
    repository: str
    revision: None
    status: Literal["unreadable"]
    error: str
    hint: str


class OverrideV1(TypedDict):
    """What `override` says; `flags` are the words of a command line."""

    schema_version: Literal[1]
    engine: str
    release: str
    works: bool
    flags: list[str]
    reason: str
    hint: str
