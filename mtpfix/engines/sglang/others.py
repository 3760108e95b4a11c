"""bitsandbytes and ModelSlim in SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.listing import Entry, Rule, escaped, firsts, picked, plain, quantized, read_list
from mtpfix.model import Answer, Layer

_NEVER = "the method leaves this kind of layer alone"


def bitsandbytes(query: MatchQuery) -> Rule:
    """BitsAndBytesConfig: an entry is a component of the name or a leading part of it; experts are always quantized.

    Raises ValueError for another storage type than uint8. (sglang 0.5.9 srt/layers/quantization/bitsandbytes.py:153)
    """
    storage = query.config.get("bnb_4bit_quant_storage") or "uint8"
    if storage != "uint8":
        raise ValueError(f"unsupported bnb_4bit_quant_storage: {storage}")
    entries = read_list(query.config.get("llm_int8_skip_modules") or None, "/llm_int8_skip_modules")
    known = firsts(entries)
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


def modelslim(query: MatchQuery) -> Rule:
    """ModelSlimConfig: quant_model_description.json says for every weight how it is stored, `FLOAT` is plain.

    Ascend only; experts are told by expert 0. (sglang 0.5.9 srt/layers/quantization/modelslim/modelslim.py:135)
    """
    stored: Mapping[str, Any] = query.config

    def weight(name: str) -> Entry:
        return Entry(name, "/" + escaped(f"{name}.weight"), str(stored.get(f"{name}.weight", "")))

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "moe":
            found = [weight(f"{runtime}.0.{leaf}") for leaf in ("gate_proj", "w2")]
            known = next((entry for entry in found if entry.written), None)
            if known is None:
                raise ValueError(f"the description names no expert of {runtime}")
            return quantized("modelslim", known)
        if layer != "linear":
            return plain(_NEVER)
        leaf = runtime.rpartition(".")[2]
        shards = [weight(runtime.replace(leaf, shard)) for shard in query.packed.get(leaf, (leaf,))]
        if len({shard.written == "FLOAT" for shard in shards}) > 1:
            raise ValueError(f"some but not all shards of {runtime} are FLOAT")
        return plain(shards[0]) if shards[0].written == "FLOAT" else quantized("modelslim", shards[0])

    return answer
