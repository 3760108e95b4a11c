"""vLLM 0.12.0 to 0.33.0: which method it sees in a config and what it decides for a runtime name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mtpfix.engines.base import MatchQuery, Method
from mtpfix.engines.releases import modelled
from mtpfix.engines.vllm import compressed_tensors, fp8, gptq_awq, inc, modelopt, others, quark
from mtpfix.engines.vllm.answers import Constant, Decider, Refusal, SafeMatcher, plain
from mtpfix.engines.vllm.detect import UNQUANTIZED, detect
from mtpfix.engines.vllm.switches import ENGINE_NAME, METHODS, change_points, known
from mtpfix.frozen import replace
from mtpfix.model import Answer, Cause, Packed

__all__ = ["ENGINE"]

_BUILDERS: Mapping[str, Callable[[MatchQuery], Decider]] = {
    "modelopt": modelopt.build,
    "modelopt_fp4": modelopt.build,
    "modelopt_mxfp8": modelopt.build,
    "modelopt_mixed": modelopt.build,
    "fp8": fp8.build,
    "deepseek_v4_fp8": fp8.build,
    "compressed-tensors": compressed_tensors.build,
    "gptq": gptq_awq.build,
    "awq": gptq_awq.build,
    "moe_wna16": gptq_awq.build,
    "auto-round": inc.build,
    "quark": quark.build,
    "torchao": others.build,
    "bitsandbytes": others.build,
    "mxfp4": others.build,
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
        return SafeMatcher(lambda: _build(query))

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
    builder = _BUILDERS.get(method)
    if builder is None:
        return Constant(Answer("unknown", Cause(rule=f"the list test of {method} is not modelled")))
    return builder(replace(query, method=method))


def _canonical(method: str) -> str:
    return next((row.method for row in METHODS if row.written == method), method)


ENGINE = Vllm()
