"""compressed-tensors: `ignore` first, then the config group whose target fits the name, the shards or the class.

Read at vllm-0.33.0 C/compressed_tensors.py:129 (mapping), :158 (decision), :998 (group), C/utils.py:53-190 (targets),
C/compressed_tensors_moe/compressed_tensors_moe.py:25 (experts).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.vllm.answers import NOT_ASKED, Decider, Refusal, cause_of, listed, plain
from mtpfix.engines.vllm.ct_schemes import Group, embedding_scheme, experts_scheme, linear_scheme, parse_group
from mtpfix.engines.vllm.entries import Entry, are_texts, in_force, numbered, read, rename, under
from mtpfix.engines.vllm.matching import Patterns, agreed, shards
from mtpfix.engines.vllm.switches import on
from mtpfix.frozen import dataclass
from mtpfix.model import Answer, Layer, Mapper, Packed
from mtpfix.patch import step
from mtpfix.regexes import compiled

_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_CLASS_OF_LEAF = {
    "qkv_proj": "QKVParallelLinear",
    "gate_up_proj": "MergedColumnParallelLinear",
    "in_proj_qkvz": "MergedColumnParallelLinear",
    "in_proj_ba": "MergedColumnParallelLinear",
    "o_proj": "RowParallelLinear",
    "down_proj": "RowParallelLinear",
    "out_proj": "RowParallelLinear",
    "gate": "ReplicatedLinear",
    "fc": "ReplicatedLinear",
    "eh_proj": "ReplicatedLinear",
    "shared_expert_gate": "ReplicatedLinear",
}
_CLASSES: Mapping[Layer, str] = {"lm_head": "ParallelLMHead", "embedding": "VocabParallelEmbedding"}


def linear_class(name: str) -> str:
    """The layer class that vLLM builds for a linear of this name, as far as its last component tells."""
    leaf = name.rsplit(".", 1)[-1]
    merged = leaf.startswith("fused_qkv_a_proj")
    return _CLASS_OF_LEAF.get(leaf, "MergedColumnParallelLinear" if merged else "ColumnParallelLinear")


@dataclass(frozen=True, slots=True)
class Target:
    """A target of a config group: where it stands and what it asks for."""

    entry: Entry
    group: Group
    label: str


def is_path(name: str) -> bool:
    """Whether a mapper gets to see an entry: names with a dot, no patterns (from 0.13.0)."""
    return "." in name and not name.startswith("re:")


def read_targets(config: Mapping[str, Any], release: str) -> dict[str, Target]:
    """The targets in the engine's order, the last of equal ones winning. Raises where the engine refuses a group."""
    if on("ct-attention-groups", release) and not on("ct-groups-optional", release) and "config_groups" not in config:
        raise KeyError("config_groups")
    found: dict[str, Target] = {}
    groups: Mapping[str, Any] = config.get("config_groups", {})
    for label, value in groups.items():
        if on("ct-attention-groups", release) and _is_attention(value["targets"]):
            continue
        entries = read(value.get("targets"), f"/config_groups/{step(label)}/targets")
        group = parse_group(value, config.get("format"), release) if entries else None
        found.update((entry.name, Target(entry, group, label)) for entry in entries if group is not None)
    return found


# What of a release decides what the targets of a config are, and how they are searched.
_OF_TARGETS = (
    "ct-attention-groups",
    "ct-groups-optional",
    "ct-no-act-order",
    "ct-shards-before-class",
    "ct-unmatched-plain",
)


def _is_attention(targets: Sequence[str]) -> bool:
    return len(targets) == 1 and targets[0].endswith("Attention")


def _mapped_targets(
    targets: Mapping[str, Target], mappers: Sequence[Mapper], only: Callable[[str], bool] | None
) -> dict[str, Target]:
    current = dict(targets)
    for mapper in mappers:
        renamed = (
            (rename(mapper, name) if only is None or only(name) else name, target) for name, target in current.items()
        )
        current = {name: target for name, target in renamed if name is not None}
    return current


class Targets:
    """Which target a layer takes: by name, by all of its shards, by its class."""

    def __init__(self, targets: Mapping[str, Target], packed: Packed, release: str) -> None:
        self._targets = targets
        names = numbered(target.entry._replace(name=name) for name, target in targets.items())
        self._names = names
        self._patterns = Patterns(names)
        self._packed = packed
        self._classes: dict[str, str | None] = {}
        self._shards_first = on("ct-shards-before-class", release)
        self._must_match = not on("ct-unmatched-plain", release)

    def find(self, name: str, kind: str) -> Target | None:
        """The target, or None; before 0.21.0 the engine raises instead. `kind`: the layer's class."""
        if not self._targets:
            return None
        found = self._by_name(name)
        if self._shards_first:
            found = found or self._by_shards(name) or self._by_class(kind)
        else:
            found = found or self._by_class(kind) or self._by_shards(name)
        if found is None and self._must_match:
            raise Refusal("ValueError", f"no target of a config group matches {name}")
        return None if found is None else self._targets[found]

    def _by_name(self, name: str) -> str | None:
        entry = self._patterns.find(name)
        return None if entry is None else str(entry.name)

    def _by_shards(self, name: str) -> str | None:
        fused = next((key for key in self._packed if name.endswith(key)), None)
        if fused is None:
            return None
        found = [self._by_name(name.replace(fused, shard)) for shard in self._packed[fused]]
        return found[0] if found and all(found) else None

    def _by_class(self, kind: str) -> str | None:
        if kind not in self._classes:
            self._classes[kind] = self._first_class(kind)
        return self._classes[kind]

    def _first_class(self, kind: str) -> str | None:
        for entry in self._names:
            name = str(entry.name)
            if name.startswith("re:"):
                if compiled(name[3:]).match(kind):
                    return name
            elif name.lower() in kind.lower():
                return name
        return None


def _ignored(
    query: MatchQuery, mappers: Sequence[Mapper], only: Callable[[str], bool] | None, *, exhaustive: bool
) -> tuple[Patterns, frozenset[str]]:
    """The exclusion list, ready to be searched, and its texts."""
    ignore = query.once(("vllm ct list",), lambda: read(query.config.get("ignore", []), "/ignore"))
    entries = under(ignore, mappers, only=only)

    def made() -> tuple[Patterns, frozenset[str]]:
        return Patterns(entries), frozenset(entry.name for entry in entries if isinstance(entry.name, str))

    patterns, literal = query.once(("vllm ct entries", entries), made) if are_texts(entries) else made()
    return patterns.exhaustive() if exhaustive else patterns, literal


class CompressedTensors:
    """A compressed-tensors config."""

    def __init__(self, query: MatchQuery) -> None:
        config, release = query.config, query.release
        self._release = release
        self._packed = query.packed
        self._answers: dict[tuple[str, Callable[[Group, str], str]], Answer] = {}
        mappers = in_force(query.mappers, release)
        only = is_path if on("ct-paths-only", release) else None
        self._expert_class = "RoutedExperts" if on("routed-experts", release) else "FusedMoE"
        self._targets, self._expert_targets = query.once(
            (
                "vllm ct targets",
                *(on(switch, release) for switch in _OF_TARGETS),
                self._expert_class,
                mappers,
                only is None,
                tuple(query.packed.items()),
            ),
            lambda: self._both_targets(query, mappers, only),
        )
        _check_sparsity(config, release)
        self._whole_name_wins = on("fused-patterns", release)
        ignored = query.once(
            ("vllm ct", mappers, only is None, self._whole_name_wins),
            lambda: _ignored(query, mappers, only, exhaustive=self._whole_name_wins),
        )
        self._ignored, self._literal = ignored

    def _both_targets(
        self, query: MatchQuery, mappers: Sequence[Mapper], only: Callable[[str], bool] | None
    ) -> tuple[Targets, Targets]:
        """The targets of linears, and those of experts, which take the target of linears where they have no own."""
        targets = _mapped_targets(read_targets(query.config, query.release), mappers, only)
        with_experts = dict(targets)
        if "Linear" in targets:
            with_experts.setdefault(self._expert_class, targets["Linear"])
        return Targets(targets, query.packed, query.release), Targets(with_experts, query.packed, query.release)

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "linear":
            return self._linear(runtime, linear_class(runtime))
        if layer == "moe":
            return self._experts(runtime, projections)
        if layer == "lm_head":
            return self._head(runtime)
        return self._embedding(runtime, _CLASSES["embedding"])

    def _linear(self, name: str, kind: str) -> Answer:
        ignored, target = self._scheme(name, kind, self._targets)
        if ignored is not None:
            return listed(ignored)
        if target is None:
            return plain("no target of a config group matches")
        return self._quantized(target, linear_scheme)

    def _scheme(self, name: str, kind: str, targets: Targets) -> tuple[Entry | None, Target | None]:
        ignored = self._find_ignored(name)
        return ignored, None if ignored is not None else targets.find(name, kind)

    def _find_ignored(self, name: str) -> Entry | None:
        leaf = name.rsplit(".", 1)[-1]
        fused = leaf in self._packed
        if self._whole_name_wins or not fused or name in self._literal:
            whole = self._ignored.find(name)
            if whole is not None or not (fused and self._whole_name_wins):
                return whole
        return agreed(name, shards(name, leaf, self._packed), self._ignored.find)

    def _experts(self, name: str, projections: tuple[str, ...]) -> Answer:
        names = projections if projections and on("ct-expert-names", self._release) else _PROJECTIONS
        found = [
            self._scheme(f"{name}.0.{projection}", self._expert_class, self._expert_targets) for projection in names
        ]
        groups = [None if target is None else target.group for _, target in found]
        if any(group != groups[-1] for group in groups):
            witness = next((entry for entry, _ in found if entry is not None), None)
            raise Refusal("ValueError", f"the projections of expert 0 of {name} have different schemes", witness)
        ignored, target = found[0]
        if target is None:
            return listed(ignored) if ignored is not None else plain("no target of a config group matches")
        return self._quantized(target, experts_scheme)

    def _head(self, name: str) -> Answer:
        """The head as a linear; whatever ValueError that raises, the engine goes on with the embedding's rules."""
        if not on("ct-head", self._release):
            return plain("lm_head is never quantized before 0.20.0")
        try:
            answer = self._linear(name, _CLASSES["lm_head"])
        except Refusal as problem:
            if problem.kind != "ValueError":
                raise
            answer = plain(problem.reason)
        if answer.decision == "quantized" or not on("ct-embedding", self._release):
            return answer
        return self._embedding(name, _CLASSES["lm_head"])

    def _embedding(self, name: str, kind: str) -> Answer:
        if not on("ct-embedding", self._release):
            return plain(NOT_ASKED)
        ignored, target = self._scheme(name, kind, self._targets)
        if ignored is not None:
            return listed(ignored)
        if target is None:
            return plain("no target of a config group matches")
        return self._quantized(target, embedding_scheme)

    def _quantized(self, target: Target, scheme: Callable[[Group, str], str]) -> Answer:
        key = (target.entry.pointer, scheme)
        if key not in self._answers:
            cause = cause_of(target.entry, f"config group {target.label}")
            self._answers[key] = Answer("quantized", cause, scheme(target.group, self._release))
        return self._answers[key]


def _check_sparsity(config: Mapping[str, Any], release: str) -> None:
    sparsity = config.get("sparsity_config")
    if sparsity and on("ct-no-sparsity", release) and sparsity.get("targets"):
        raise Refusal("DeprecationWarning", "sparsity was removed from compressed-tensors")


def build(query: MatchQuery) -> Decider:
    """The decider of a compressed-tensors config."""
    return CompressedTensors(query)
