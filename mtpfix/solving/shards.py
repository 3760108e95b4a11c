"""Fused modules: how engines ask for their shards, and what they answer where those are listed unlike each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mtpfix.decisions import Judge, Row
from mtpfix.engines.base import KNOWN_SHARDS
from mtpfix.model import Answer

EXPERT_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def halves(answer: Answer) -> bool:
    """Whether an engine stops since an entry names some shards of a fused module."""
    return answer.decision == "error" and "not all shards" in answer.cause.rule


def taken(old: Answer, new: Answer) -> bool:
    """Whether a module that is not stored plain is newly built plain, or stopped on.

    An engine that stopped on the shards of a fused module told of it at least; what is then plain by an entry is not.
    """
    if old.decision == "error":
        return new.decision == "plain" and bool(new.cause.pointer) and "shards of" in old.cause.rule
    return old.decision == "quantized" != new.decision


def cited(judge: Judge, row: Row, answer: Answer) -> Iterator[str]:
    """The entry that decided, and the same entry for the other shards of a fused module."""
    entry = answer.cause.entry
    yield entry
    shards = judge.packed.get(row.ask.runtime.rpartition(".")[2], ()) if row.ask and entry else ()
    for shard in shards:
        if shard in entry:
            yield from (entry.replace(shard, other) for other in shards)


def shard_names(judge: Judge, row: Row) -> Iterator[str]:
    """The names that a fused module's shards would be asked by: of a fused linear, or of a stack of experts."""
    assert row.ask is not None
    runtime = row.ask.runtime
    if row.ask.layer == "moe":
        for number in row.unit.stored.experts:
            yield from (f"{runtime}.{number}.{name}" for name in row.ask.projections or EXPERT_PROJECTIONS)
        return
    fused = runtime.rpartition(".")[2]
    yield from (runtime.removesuffix(fused) + shard for shard in judge.packed.get(fused, ()))


def shards_of(judge: Judge, row: Row, names: Iterable[str]) -> tuple[str, ...]:
    """The names of a fused module's shards: those that the class tells, or those that an engine knows by itself."""
    assert row.ask is not None
    return tuple(shard_names(judge, row)) or _named_alike(row.ask.runtime, names)


def _named_alike(runtime: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names of modules that are fused into one, where the class tells no shards of it: SGLang knows some itself.

    A module that is stored fused is taken apart as engines do it.
    """
    head, _, fused = runtime.rpartition(".")
    leaves = tuple(dict.fromkeys(name.rpartition(".")[2] for name in names))
    return tuple(f"{head}.{leaf}" for leaf in (leaves if len(leaves) > 1 else KNOWN_SHARDS.get(fused, ())))
