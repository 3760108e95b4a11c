"""vLLM 0.12.0 to 0.33.0: which method it sees in a config and what it decides for a runtime name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from mtpfix.engines.base import MatchQuery, Method
from mtpfix.engines.releases import modelled
from mtpfix.engines.vllm.answers import Constant, Decider, Refusal, SafeMatcher, plain
from mtpfix.engines.vllm.detect import UNQUANTIZED, detect
from mtpfix.engines.vllm.switches import ENGINE_NAME, METHODS, change_points, known
from mtpfix.frozen import replace
from mtpfix.model import Answer, Cause, Packed

__all__ = ["ENGINE"]

# Method -> the file here whose `build` makes its matcher. A checkpoint needs one or two of them, so that they are
# imported when they are asked for.
_FILES: Mapping[str, str] = {
    "modelopt": "modelopt",
    "modelopt_fp4": "modelopt",
    "modelopt_mxfp8": "modelopt",
    "modelopt_mixed": "modelopt",
    "fp8": "fp8",
    "deepseek_v4_fp8": "fp8",
    "compressed-tensors": "compressed_tensors",
    "gptq": "gptq_awq",
    "awq": "gptq_awq",
    "moe_wna16": "gptq_awq",
    "auto-round": "inc",
    "quark": "quark",
    "torchao": "others",
    "bitsandbytes": "others",
    "mxfp4": "others",
    "fbgemm_fp8": "others",
    "hqq": "others",
}


class Vllm:
    """The engine; see `mtpfix.engines.base.Engine`."""

    name = ENGINE_NAME

    @property
    def releases(self) -> tuple[str, ...]:
        """Every modelled release, ascending."""
        return modelled(ENGINE_NAME)

    def method(self, config: Mapping[str, Any], release: str, *, model_type: str = "") -> Method:
        """The method this release sees in a config fragment."""
        return detect(config, release, model_type)

    def matcher(self, query: MatchQuery) -> SafeMatcher:
        """A matcher for one config and one release."""
        made = SafeMatcher(lambda: _build(query))
        return made if made.decider is None else query.once(("matcher", id(made.decider)), lambda: made)

    def handed_over(self, method: str, packed: Packed, release: str) -> Packed:
        """The class's packed mapping as it is."""
        return packed

    def change_points(self, method: str) -> tuple[str, ...]:
        """Releases at which matching for this method changed."""
        return change_points(_canonical(method))


def _build(query: MatchQuery) -> Decider:
    if query.method == UNQUANTIZED:
        return Constant(plain("the config names no quantization method"))
    method = _canonical(query.method)
    if not any(known(row.written, query.release) for row in METHODS if row.method == method):
        raise Refusal("ValueError", f"this release knows no method {query.method}")
    if method not in _FILES:
        return Constant(Answer("unknown", Cause(rule=f"the list test of {method} is not modelled")))
    build: Callable[[MatchQuery], Decider] = import_module(f"{__name__}.{_FILES[method]}").build
    return build(query if query.method == method else replace(query, method=method))


def _canonical(method: str) -> str:
    return next((row.method for row in METHODS if row.written == method), method)


ENGINE = Vllm()
