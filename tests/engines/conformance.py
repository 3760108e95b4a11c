"""What a family file says against what a real engine did (see records.py); no engine is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from records import ASKS, Record, Run, load_record, write_checkpoint

import mtpfix
from mtpfix.families import identify
from mtpfix.families.base import Ask, Family, View, ask, config_value, special_for, view_for
from mtpfix.families.conditions import holds_all
from mtpfix.families.patterns import Key, key_of
from mtpfix.releases import holds

METHODS = {
    "auto_gptq": "gptq", "gptq_marlin": "gptq", "auto_awq": "awq", "awq_marlin": "awq", "inc": "auto-round",
    "auto_round": "auto-round", "auto-round": "auto-round",
}  # fmt: skip
LIST_LAYERS = ("linear", "moe", "lm_head")
LATENT = ("fused_qkv_a_proj_with_mqa", "q_b_proj", "kv_b_proj", "o_proj")
# What a parent class builds first and the class builds again under other names.
REBUILT = {
    "LlamaForCausalLMEagle3": frozenset(
        {"model.self_attn.qkv_proj", "model.mlp.gate_up_proj", "model.mlp.down_proj"},
    ),
}
Question = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A record, one run of it, and the view that is under test."""

    record: Record
    run: Run
    family: Family
    view: View
    layers: int
    method: str

    @property
    def quant(self) -> dict[str, Any]:
        found = self.record.config.get("quantization_config") or self.record.files.get("hf_quant_config.json", {})
        return dict(found)


def case_of(record: Record, run: Run) -> Case | None:
    """The case of a run; None where the family has no such view."""
    family, reason = identify(record.config)
    assert family is not None, reason
    architectures = tuple(record.config.get("architectures", ()))
    view = view_for(family, run.engine, run.part, run.version, architectures)  # type: ignore[arg-type]
    if view is None:
        return None
    layers = config_value(record.config, (family.layers_key,))
    return Case(record, run, family, view, layers, METHODS.get(run.method, run.method))


@lru_cache(maxsize=1)
def report_of(name: str) -> mtpfix.Report:
    """What `check` says of a recorded checkpoint; not once more for its next run."""
    with TemporaryDirectory() as folder:
        return mtpfix.check(write_checkpoint(load_record(ASKS / f"{name}.json"), Path(folder) / "c"))


def stored_names(record: Record) -> list[str]:
    """Modules that own a matrix, norms and biases left out, in header order."""
    named = {
        name.rpartition(".")[0]: None
        for name, _, shape in record.tensors()
        if len(shape) > 1 or name.endswith((".qweight", ".weight_packed"))
    }
    return list(named)


@lru_cache(maxsize=1)
def answers(case: Case) -> tuple[tuple[str, Key, Ask | None], ...]:
    """What the view says about every stored module."""
    return tuple(_answers(case))


def _answers(case: Case) -> Iterator[tuple[str, Key, Ask | None]]:
    names = stored_names(case.record)
    held = frozenset(names)
    for name in names:
        key, head = key_of(name), name.rpartition(".")[0]

        def beside(leaf: str, head: str = head) -> bool:
            return f"{head}.{leaf}" in held

        yield name, key, ask(case.view, key, case.layers, case.run.version, case.method, beside)


def decided_by_class(case: Case, key: Key) -> bool:
    """Whether a special of the view decides, so that the list is never asked."""
    return any(
        holds(case.run.version, fact.span)
        and (not fact.methods or case.method in fact.methods)
        and (found := special_for(fact, key, case.layers)) is not None
        and holds_all(found.when, case.quant, case.record.config, case.layers)
        for fact in case.view.specials
    )


def predicted(case: Case) -> set[Question]:
    """The questions that the view predicts."""
    return {
        (found.runtime, found.layer)
        for _, key, found in answers(case)
        if found is not None and found.layer in LIST_LAYERS and not decided_by_class(case, key)
    }


def tolerated(case: Case) -> set[str]:
    """Runtime names that the engine asks for though it loads nothing there.

    `absent` rows, a head that is not stored, and the shards of a fused module that it tries one by one before it builds
    the module (SGLang's GLM-5-next).
    """
    found = {asked.runtime for _, _, asked in answers(case) if asked is not None and asked.layer == "absent"}
    found |= REBUILT.get(case.view.model_class, frozenset())
    if not any(name.endswith("head") for name in stored_in_part(case)):
        found |= {prefix for prefix, kind in asked(case.run) if kind == "lm_head"}
    for runtime, _ in predicted(case):
        owner, _, leaf = runtime.rpartition(".")
        if case.view.model_class == "GigaChat35ForCausalLM" and leaf == "in_proj_qkvz":
            found |= {f"{owner}.{shard}" for shard in LATENT}  # the parent class builds latent attention there first
        found |= {f"{owner}.{shard}" for shard in (case.view.packed or {}).get(leaf, ())}
    return found


def bypassed(case: Case) -> set[str]:
    """Runtime names that the view calls unasked, or decides by itself."""
    return {
        found.runtime
        for _, key, found in answers(case)
        if found is not None and found.runtime and (found.layer == "unasked" or decided_by_class(case, key))
    }


def asked(run: Run) -> set[Question]:
    """The questions that the engine asked, embeddings left out."""
    return {(prefix, kind) for prefix, kind, _, _ in run.asked if kind in LIST_LAYERS}


def in_part(case: Case, key: Key) -> bool:
    """Whether a stored module belongs to the part under test."""
    draft = case.family.separate or case.family.draft.find(key, case.layers) is not None
    return draft == (case.run.part == "draft")


def stored_in_part(case: Case) -> list[str]:
    """The stored modules of the part; empty where a checkpoint lacks its draft."""
    return [name for name in stored_names(case.record) if in_part(case, key_of(name))]


def unnamed(case: Case) -> list[str]:
    """Stored modules of the part that the view has no row for."""
    return [name for name, key, found in answers(case) if found is None and in_part(case, key)]
