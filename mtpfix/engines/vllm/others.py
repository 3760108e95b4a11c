"""Methods with a small list test, or none: torchao, bitsandbytes, mxfp4, FBGEMM FP8, HQQ.

Read at vllm-0.33.0 Q/torchao.py:76-90, :168-250, Q/mxfp4.py:91, Q/fbgemm_fp8.py:73-92, vllm-0.27.1
Q/bitsandbytes.py:140-171 and vllm-0.12.0 Q/hqq_marlin.py:44-100.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.vllm.answers import NOT_ASKED, Decider, Refusal, listed, plain, quantized, required
from mtpfix.engines.vllm.entries import Entry, numbered, read
from mtpfix.engines.vllm.matching import Exact, SkipList, earliest, searched
from mtpfix.engines.vllm.switches import on
from mtpfix.model import Answer, Cause, Layer
from mtpfix.patch import step
from mtpfix.regexes import compiled


class TorchAo:
    """torchao: an entry skips every module whose name has it as a run of whole components. No mapper, no shards."""

    def __init__(self, query: MatchQuery) -> None:
        config = query.config
        kinds = config.get("quant_type")
        if kinds is None or len(kinds) != 1 or "default" not in kinds:
            raise Refusal("AssertionError", "quant_type has not the one key default")
        data = kinds["default"].get("_data", {})
        named = data.get("module_fqn_to_config", {}) if isinstance(data, dict) else {}
        self._named: Mapping[str, Any] = named if isinstance(named, dict) else {}
        self._skipped, self._lengths = query.once(("vllm torchao",), lambda: self._listed(config))

    def _listed(self, config: Mapping[str, Any]) -> tuple[Exact, list[int]]:
        """The entries, and how many components they have."""
        entries = [*read(config.get("modules_to_not_convert") or [], "/modules_to_not_convert")]
        place = "/quant_type/default/_data/module_fqn_to_config"
        entries += [Entry(k, k, f"{place}/{step(k)}", 0) for k, v in self._named.items() if v is None]
        return Exact(numbered(entries)), sorted({entry.name.count(".") + 1 for entry in entries})

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer != "linear":
            return plain(NOT_ASKED)
        entry = self._find(runtime)
        if entry is not None:
            return listed(entry)
        if any(value is not None for value in self._named.values()):
            return self._by_name(runtime)
        return quantized("torchao")

    def _find(self, name: str) -> Entry | None:
        parts = name.split(".")
        runs = (
            ".".join(parts[start : start + length])
            for length in self._lengths
            for start in range(len(parts) - length + 1)
        )
        return earliest(self._skipped.find(run) for run in runs)

    def _by_name(self, name: str) -> Answer:
        """A map of configs by module: equal name, `re:` full match, `_default`; no hit is plain."""
        patterns = (key for key in self._named if key.startswith("re:") and compiled(key[3:]).fullmatch(name))
        key = name if name in self._named else next(patterns, "_default")
        if self._named.get(key) is None:
            return plain("no config for this module")
        cause = Cause(pointer=f"/quant_type/default/_data/module_fqn_to_config/{step(key)}", entry=key)
        return Answer("quantized", cause, "torchao")


class BitsAndBytes:
    """bitsandbytes: an entry skips linears that have it as a component or as leading path. No mapper, no shards."""

    def __init__(self, query: MatchQuery) -> None:
        if (query.config.get("bnb_4bit_quant_storage") or "uint8") != "uint8":
            raise Refusal("ValueError", "unsupported bnb_4bit_quant_storage")
        place = "/llm_int8_skip_modules"
        entries = query.once(("vllm", place), lambda: read(query.config.get("llm_int8_skip_modules") or [], place))
        self._skipped = query.once(("vllm bnb",), lambda: self._table(entries))
        self._scheme = "bnb8" if query.config.get("load_in_8bit") else "bnb4"

    @staticmethod
    def _table(entries: Sequence[Entry]) -> Exact:
        """The entries as the set that the engine makes of them. Raises TypeError for what is in no set."""
        if not {list, dict}.isdisjoint(type(entry.name) for entry in entries):
            raise TypeError("an entry is no text")
        return Exact(entries)

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "moe":
            return quantized(self._scheme, "experts are always quantized")
        if layer != "linear":
            return plain(NOT_ASKED)
        parts = runtime.split(".")
        heads = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
        entry = earliest(self._skipped.find(name) for name in (*parts, *heads))
        return quantized(self._scheme) if entry is None else listed(entry)


class Mxfp4:
    """mxfp4: no list is read; experts are quantized, linears never."""

    def __init__(self, query: MatchQuery) -> None:
        self._scheme = "mxfp4"

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "moe":
            return quantized(self._scheme, "experts are always quantized; the method reads no list")
        return plain("the method quantizes experts only")


class FbgemmFp8:
    """FBGEMM FP8: whole names of linears, the shards of fused ones. No mapper, no experts."""

    def __init__(self, query: MatchQuery) -> None:
        names = required(query.config, "modules_to_not_convert")
        required(query.config, "activation_scale_ub")
        place = "/modules_to_not_convert"
        match, experts = query.once(("vllm fbgemm",), lambda: searched(numbered(read(names or [], place)), "exact"))
        fused_name = on("fused-name", query.release)
        self._skipped = SkipList(match, query.packed, experts=experts, fused_name=fused_name)

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer != "linear":
            return plain(NOT_ASKED)
        entry = self._skipped.find(runtime)
        return quantized("fp8-channel") if entry is None else listed(entry)


class Hqq:
    """HQQ: an entry skips linears that have it as a component. No mapper, no shards, no experts."""

    def __init__(self, query: MatchQuery) -> None:
        weights = query.config["quant_config"]["weight_quant_params"]
        if required(weights, "group_size") != 64 or required(weights, "nbits") != 4:
            raise Refusal("AssertionError", "only 4 bits in groups of 64 are supported")
        self._skipped = Exact(read(query.config["skip_modules"] or [], "/skip_modules"))

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer != "linear":
            return plain(NOT_ASKED)
        entry = earliest(self._skipped.find(part) for part in runtime.split("."))
        return quantized("hqq") if entry is None else listed(entry)


_CLASSES: Mapping[str, Callable[[MatchQuery], Decider]] = {
    "fbgemm_fp8": FbgemmFp8,
    "hqq": Hqq,
    "torchao": TorchAo,
    "bitsandbytes": BitsAndBytes,
    "mxfp4": Mxfp4,
}


def build(query: MatchQuery) -> Decider:
    """The decider of one of these methods."""
    return _CLASSES[query.method](query)
