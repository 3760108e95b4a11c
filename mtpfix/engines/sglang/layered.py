"""`quantized_layers` of MIXED_PRECISION: which algorithm SGLang finds for a runtime name, and what it builds of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.listing import Below, Entry
from mtpfix.engines.sglang.names import mapped_keys
from mtpfix.engines.sglang.switches import on
from mtpfix.frozen import dataclass
from mtpfix.model import Layer
from mtpfix.patch import step

_INNER, _OUTER = "language_model.model.", "model.language_model."
_BLOCK = ("FP8_PB_WO", "FP8_BLOCK_SCALES")


@dataclass(frozen=True, slots=True)
class Built:
    """What an algorithm becomes: the scheme, and since which switch for linears, for experts ("" from the first)."""

    scheme: str
    linear: str
    experts: str


_BUILT = {
    "FP8": Built("fp8", "", ""),
    "NVFP4": Built("nvfp4", "", ""),
    "W4A16_NVFP4": Built("nvfp4-w4a16", "mixed-w4a16", "mixed-w4a16"),
    "MXFP8": Built("mxfp8", "mixed-mxfp8", "mixed-mxfp8"),
    "FP8_PB_WO": Built("fp8-pb", "mixed-pb-wo", "mixed-pb-wo-experts"),
    "FP8_BLOCK_SCALES": Built("fp8-block", "mixed-block-scales", "mixed-block-scales"),
}


@dataclass(frozen=True, slots=True)
class Listed:
    """The algorithm of a module and the key that gave it."""

    algo: str
    entry: Entry


class Layered:
    """The table for one release, mapper and packed mapping."""

    __slots__ = ("_below", "_layers", "_packed", "_pointer", "_release")

    def __init__(self, layers: Mapping[str, Any], pointer: str, query: MatchQuery) -> None:
        self._release = query.release
        self._packed = query.packed
        self._pointer = pointer
        _readable(layers)
        if on("mixed-pb-wo-experts", query.release):
            _one_block_size(layers)
        self._layers = mapped_keys(layers, query.mappers)
        self._below: Below | None = None

    def of(self, prefix: str) -> Listed | None:
        """The module's own key, else its shards', else the first key below it.

        Raises ValueError where shards have different algorithms, KeyError or AttributeError for a broken value.
        """
        names = tuple(dict.fromkeys(self._spellings(prefix)))
        for name in names:
            if name in self._layers:
                return self._listed(name)
        shards = self._of_shards(prefix)
        if shards:
            return shards
        if self._below is None:
            self._below = Below(self._layers)
        return next((self._listed(below) for name in names if (below := self._below.first(name)) is not None), None)

    def scheme(self, algo: str, layer: Layer) -> str:
        """The scheme that the release builds; "" where the algorithm leaves this kind of layer plain."""
        built = _BUILT.get(algo)
        if built is None or (layer == "embedding" and algo != "NVFP4"):
            return ""
        since = built.experts if layer == "moe" else built.linear
        return built.scheme if not since or on(since, self._release) else ""

    def _listed(self, name: str) -> Listed:
        written, value = self._layers[name]
        return Listed(value["quant_algo"].upper(), Entry(name, f"{self._pointer}/{step(written)}", written))

    def _of_shards(self, prefix: str) -> Listed | None:
        base, leaf = prefix.rsplit(".", 1)[0], prefix.rpartition(".")[2]
        if leaf not in self._packed:
            return None
        found = [
            self._listed(name)
            for spelling in dict.fromkeys(self._spellings(base))
            for shard in self._packed[leaf]
            if (name := f"{spelling}.{shard}") in self._layers
        ]
        if len({listed.algo for listed in found}) > 1:
            raise ValueError(f"different algorithms within {prefix}")
        return found[0] if found else None

    def _spellings(self, prefix: str) -> Iterator[str]:
        yield prefix
        if not on("mixed-language-model", self._release):
            return
        if prefix.endswith(".lm_head"):
            yield "lm_head"
        bare = on("mixed-model-prefix", self._release)
        if prefix.startswith(_INNER):
            yield _OUTER + prefix.removeprefix(_INNER)
        elif prefix.startswith(_OUTER):
            yield _INNER + prefix.removeprefix(_OUTER)
            if bare:
                yield "model." + prefix.removeprefix(_OUTER)
        elif prefix.startswith("model.") and bare:
            yield _OUTER + prefix.removeprefix("model.")


def _readable(layers: Mapping[str, Any]) -> None:
    """SGLang looks for the first NVFP4 layer's group size: a broken value before it raises AttributeError."""
    any(value.get("quant_algo", "").upper() in ("NVFP4", "W4A16_NVFP4") for value in layers.values())


def _one_block_size(layers: Mapping[str, Any]) -> None:
    sizes = {
        int(value.get("group_size", 128)) for value in layers.values() if value.get("quant_algo", "").upper() in _BLOCK
    }
    if len(sizes) > 1:
        raise ValueError(f"block-FP8 layers of different group sizes: {sorted(sizes)}")
