"""bitsandbytes and ModelSlim in SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.listing import Entry, Rule, firsts, picked, plain, quantized, read_list
from mtpfix.engines.sglang.switches import on
from mtpfix.model import Answer, Layer
from mtpfix.patch import step

_NEVER = "the method leaves this kind of layer alone"


def bitsandbytes(query: MatchQuery) -> Rule:
    """BitsAndBytesConfig: an entry is a component of the name or a leading part of it; experts are always quantized.

    Raises ValueError for another storage type than uint8. (sglang 0.5.9 srt/layers/quantization/bitsandbytes.py:153)
    """
    storage = query.config.get("bnb_4bit_quant_storage") or "uint8"
    if storage != "uint8":
        raise ValueError(f"unsupported bnb_4bit_quant_storage: {storage}")
    place = "/llm_int8_skip_modules"
    entries = query.once(("sglang", place), lambda: read_list(query.config.get("llm_int8_skip_modules") or None, place))
    known = query.once(("sglang bnb",), lambda: firsts(entries))
    scheme = "bnb8" if query.config.get("load_in_8bit") else "bnb4"

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "moe":
            return quantized(scheme, "the method asks no list for experts")
        if layer != "linear":
            return plain(_NEVER)
        parts = runtime.split(".")
        names = [*parts, *(".".join(parts[: length + 1]) for length in range(len(parts)))]
        found = picked(entries, min((known[name] for name in names if name in known), default=None))
        return plain(found) if found else quantized(scheme, "no entry of the list skips it")

    return answer


# quant types that a class of SGLang reads: linears, experts (sglang 0.5.23 modelslim.py:318, :345)
_LINEAR_TYPES = ("W8A8", "W8A8_DYNAMIC", "W4A4_DYNAMIC", "W8A8_MXFP8", "W4A8_MXFP", "W4A4_MXFP4")
_EXPERT_TYPES = ("W8A8_DYNAMIC", "W4A8_DYNAMIC", "W4A4_DYNAMIC", "W8A8_MXFP8", "W4A8_MXFP", "W4A4_MXFP4")
_EXPERT_NAMES = ("gate_proj", "w1")
_FLOAT = "FLOAT"


def modelslim(query: MatchQuery) -> Rule:
    """ModelSlimConfig: quant_model_description.json says for every weight how it is stored, `FLOAT` is plain.

    Ascend only; experts are told by expert 0 and are never plain. A draft does not read the file from 0.5.10 on.
    (sglang 0.5.9 srt/layers/quantization/modelslim/modelslim.py:135; sglang 0.5.23 modelslim.py:240-470)
    """
    stored: Mapping[str, Any] = query.config
    if query.options.get("part") == "draft" and on("modelslim-target-only", query.release):
        return lambda *_: plain("a draft does not read quant_model_description.json")

    def weight(name: str) -> Entry:
        return Entry(name, "/" + step(f"{name}.weight"), str(stored.get(f"{name}.weight", "")))

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "moe":
            return _slim_experts([weight(f"{runtime}.0.{leaf}") for leaf in _EXPERT_NAMES], runtime)
        if layer != "linear":
            return plain(_NEVER)
        leaf = runtime.rpartition(".")[2]
        shards = [weight(runtime.replace(leaf, shard)) for shard in query.packed.get(leaf, (leaf,))]
        if len({shard.written == _FLOAT for shard in shards}) > 1:
            raise ValueError(f"some but not all shards of {runtime} are FLOAT")
        if shards[0].written in _LINEAR_TYPES:
            return quantized(_slim_scheme(shards[0].written), _described(shards[0]))
        if shards[0].written != _FLOAT and not on("modelslim-unknown-plain", query.release):
            raise NotImplementedError("No modelslim compatible scheme was found.")
        return plain(_described(shards[0]) if shards[0].written else "the description does not name the module")

    return answer


def _slim_experts(found: list[Entry], runtime: str) -> Answer:
    known = next((entry for entry in found if entry.written), None)
    if known is None or known.written not in _EXPERT_TYPES:
        raise ValueError(f"the description names no scheme for the experts of {runtime}")
    return quantized(_slim_scheme(known.written), _described(known))


def _described(entry: Entry) -> Entry:
    """The entry as it stands in the file: its key decides by its value."""
    return Entry(entry.text, entry.pointer, f"{entry.text}.weight")


def _slim_scheme(written: str) -> str:
    """The scheme of a type; "" for one whose tensors are not known by their names and shapes."""
    return "modelslim-w8a8" if written in ("W8A8", "W8A8_DYNAMIC") else ""
