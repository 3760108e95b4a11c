"""Which weight files an engine opens, in which order, and what it does about one that is missing: a row a range of
releases, read from the sources named.

Of an index vLLM, SGLang and transformers use the file names only: of a file that they open they take every tensor,
and where two files hold a tensor of one name the one that is read later stays.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Literal

from mtpfix import releases
from mtpfix.frozen import dataclass
from mtpfix.names import natural_key
from mtpfix.releases import Span

Order = Literal["natural", "alphabetical", "any"]
SINGLE_FILE = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Opening:
    """How some releases of an engine choose files.

    by_index  only files that the index names, where there is one; else every *.safetensors of the top folder
    missing   what a named file that is not there does: it stops the engine, with `error`, or is passed over
    order     in which the files are read; `any`: as the folder lists them, or all at once
    below     what becomes of files in folders below that the index names
    consolidated  whether Mistral's `consolidated*.safetensors` alone are opened where there are any, whatever the model
              (vLLM's load format `auto` since vllm-project/vllm#28659, in 0.12.0; vllm-0.33.0
              model_executor/model_loader/default_loader.py:168-198; SGLang needs --load-format mistral,
              sglang-0.5.23 srt/model_loader/loader.py:508)
    """

    engine: str
    span: Span
    by_index: bool
    missing: Literal["stops", "passed over"]
    order: Order
    error: str = ""
    below: Literal["opened", "passed over", "taken for missing"] = "passed over"

    @property
    def consolidated(self) -> bool:
        return self.engine in _CONSOLIDATED


_CONSOLIDATED = frozenset({"vllm", "vllm-ascend"})
_VLLM = "model_executor/model_loader"
_SGLANG = "srt/model_loader"
OPENINGS = (
    Opening("vllm", Span("", "0.15.1", f"vllm-0.12.0 {_VLLM}/weight_utils.py:535, :634"), True, "passed over", "any"),
    Opening(
        "vllm",
        Span("0.16.0", "0.25.1", f"vllm-0.16.0 {_VLLM}/weight_utils.py:148, :587"),
        True,
        "passed over",
        "natural",
    ),
    Opening(
        "vllm",
        Span("0.26.0", "", f"vllm-0.26.0 {_VLLM}/weight_utils.py:582; vllm-0.33.0 {_VLLM}/weight_utils.py:590, :1134"),
        True,
        "stops",
        "natural",
        "FileNotFoundError: Weight files referenced in index but missing",
        "taken for missing",
    ),
    Opening(
        "sglang", Span("", "0.5.12.post1", f"sglang-0.5.9 {_SGLANG}/weight_utils.py:578"), True, "passed over", "any"
    ),
    Opening(
        "sglang",
        Span("0.5.13", "0.5.16", f"sglang-0.5.13 {_SGLANG}/loader.py:500"),
        True,
        "passed over",
        "alphabetical",
    ),
    Opening(
        "sglang",
        Span("0.5.17", "", f"sglang-0.5.17 {_SGLANG}/weight_utils.py:665; sglang-0.5.23 {_SGLANG}/weight_utils.py:757"),
        True,
        "stops",
        "alphabetical",
        "RuntimeError: model.safetensors.index.json references shard file(s) missing",
    ),
    Opening(
        "tensorrt-llm",
        Span("", "", "TensorRT-LLM 02086d8 _torch/models/checkpoints/hf/weight_loader.py load_weights"),
        False,
        "passed over",
        "any",
    ),
    Opening(
        "transformers",
        Span("", "", "transformers-5.24.0 utils/hub.py:968, modeling_utils.py:591, :4561"),
        True,
        "stops",
        "alphabetical",
        below="opened",
    ),
    Opening(
        "vllm-ascend",
        Span("", "", f"the loaders of vllm-0.18.0 to vllm-0.25.1 {_VLLM}/weight_utils.py"),
        True,
        "passed over",
        "natural",
    ),
)


def opening(engine: str, release: str) -> Opening:
    """How a release of an engine chooses files."""
    return next(row for row in OPENINGS if row.engine == engine and releases.holds(release, row.span))


def points(engine: str) -> tuple[str, ...]:
    """The releases of an engine in which that changed."""
    return tuple(row.span.since for row in OPENINGS if row.engine == engine and row.span.since)


def read_last(order: Order, files: Collection[str]) -> str:
    """The file that is read last; "" where nothing tells."""
    return "" if order == "any" else max(files, key=natural_key) if order == "natural" else max(files)


@lru_cache(maxsize=16)
def since(engine: str, missing: str = "", order: str = "") -> str:
    """The first release of an engine's newest range that behaves so, with the engine's name: `vLLM 0.26.0`."""
    every = [
        row for row in OPENINGS if row.engine == engine and missing in ("", row.missing) and order in ("", row.order)
    ]
    first = every[0].span.since or releases.modelled(engine)[0]
    return f"{TITLES[engine]} {first}"


TITLES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "transformers": "transformers",
    "vllm-ascend": "vLLM-Ascend",
}
