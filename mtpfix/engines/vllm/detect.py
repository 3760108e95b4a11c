"""Which method vLLM sees in a quantization config.

Read at vllm-0.33.0 vllm/transformers_utils/model_arch_config_convertor.py:241 (names), vllm/config/model.py:1383
(the order in which methods may claim a config) and the `override_quantization_method` of each method's file.
`convertor` in a source is vllm/transformers_utils/model_arch_config_convertor.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.engines.base import Method
from mtpfix.engines.releases import at_least, between
from mtpfix.engines.vllm.switches import ALGOS, algos, deprecated, known, on
from mtpfix.frozen import NamedTuple

UNQUANTIZED = "unquantized"


class Claim(NamedTuple):
    """A ModelOpt method claims a config whose algorithm equals or contains a word, in a range of releases.

    where   `flat`: only config.json's form; `nested`: only hf_quant_config.json's; "": both
    folded  the algorithm is compared in capitals
    """

    method: str
    word: str
    equal: bool
    folded: bool
    where: str
    since: str
    until: str
    source: str


CLAIMS = (
    Claim("modelopt", "FP8", False, False, "", "", "0.13.0", "0.12.0 Q/modelopt.py:309"),
    Claim("modelopt", "FP8", False, True, "", "0.14.0", "0.15.1", "0.14.0 Q/modelopt.py:330"),
    Claim("modelopt", "FP8", True, True, "", "0.16.0", "", "0.16.0 Q/modelopt.py:331"),
    Claim("modelopt_fp4", "NVFP4", False, False, "nested", "", "0.16.0", "0.12.0 Q/modelopt.py:796"),
    Claim("modelopt_fp4", "FP4", False, True, "flat", "", "0.16.0", "0.12.0 Q/modelopt.py:796"),
    Claim("modelopt_fp4", "FP4", False, True, "", "0.17.0", "", "0.17.0 Q/modelopt.py:971"),
    Claim("modelopt_mxfp8", "MXFP8", False, True, "", "0.16.0", "", "0.16.0 Q/modelopt.py:1561"),
    Claim("modelopt_mixed", "MIXED_PRECISION", True, True, "", "0.17.0", "", "0.17.0 Q/modelopt.py:1707"),
)


class Nested(NamedTuple):
    """The method that hf_quant_config.json's `quantization.quant_algo` stands for, and from when."""

    algo: str
    method: str
    since: str
    source: str


NESTED = (
    Nested("FP8", "modelopt", "", "0.12.0 vllm/config/model.py:945"),
    Nested("NVFP4", "modelopt_fp4", "", "0.12.0 vllm/config/model.py:945"),
    Nested("FP8_PER_CHANNEL_PER_TOKEN", "modelopt", "0.14.0", "0.14.0 convertor:138"),
    Nested("FP8_PB_WO", "modelopt", "0.14.0", "0.14.0 convertor:138"),
    Nested("MIXED_PRECISION", "modelopt_mixed", "0.33.0", "0.33.0 convertor:241"),
)
_FOLDED_SINCE = "0.14.0"
"""0.14.0 convertor:138: the algorithm in capitals."""
_FAMILY_SINCE = "0.22.0"
"""0.22.0 Q/modelopt.py:240."""
_LEGACY_SINCE = "0.26.0"
"""0.26.0 convertor:209: a file of ModelOpt without its name."""
_V4 = ("deepseek_v4",)
_V41 = (*_V4, "deepseek_v4_text", "deepseek_v41", "deepseek_v41_text")


def detect(config: Mapping[str, Any], release: str, model_type: str = "") -> Method:
    """The method, "" where the release knows none, or the engine's complaint about the config."""
    try:
        return _detect(config, release, model_type)
    except (AttributeError, TypeError, ValueError) as problem:
        return Method("", f"{type(problem).__name__}: {problem}")


def _detect(config: Mapping[str, Any], release: str, model_type: str) -> Method:
    nested = _nested(config, release)
    if nested is not None and not nested.name:
        return nested
    written = nested.name if nested else config.get("quant_method", "").lower()
    written = written.replace("compressed_tensors", "compressed-tensors")
    if not written:
        return Method("" if _is_foreign(config) else UNQUANTIZED)
    written = _claimed(config, written, release) or _deepseek_v4(config, written, release, model_type) or written
    name = known(written, release)
    if name and deprecated(written, release):
        return Method(name, f"ValueError: the method {written} is deprecated and needs --allow-deprecated-quantization")
    return _modelopt_algo(config, name, release) if name.startswith("modelopt") else Method(name)


def _is_foreign(config: Mapping[str, Any]) -> bool:
    """Whether a config without a method's name is MLX's or ModelSlim's."""
    return "model_quant_type" in config or ("bits" in config and "group_size" in config)


def _nested(config: Mapping[str, Any], release: str) -> Method | None:
    """What `quantization.quant_algo` of a ModelOpt file stands for; None where the config is no such file."""
    fields = config.get("quantization", {})
    legacy = isinstance(fields, dict) and "modelopt_quant_config" in fields and at_least(release, _LEGACY_SINCE)
    if config.get("producer", {}).get("name") != "modelopt" and not legacy:
        return None
    algo = fields.get("quant_algo")
    if algo is None:
        return None
    name = str(algo).upper() if at_least(release, _FOLDED_SINCE) else algo
    row = next((row for row in NESTED if row.algo == name and at_least(release, row.since)), None)
    if row is not None:
        return Method(row.method)
    return _unknown_algo(str(algo), release)


def _unknown_algo(algo: str, release: str) -> Method:
    """A release before the algorithm does not know the format; else the engine complains."""
    later = any(row.name == algo.upper() and not at_least(release, row.since) for row in ALGOS)
    return Method("") if later else Method("", f"ValueError: Unknown ModelOpt quant algo: {algo}")


def _claimed(config: Mapping[str, Any], written: str, release: str) -> str:
    """The ModelOpt method that claims a config of `quant_method` modelopt (from 0.22.0: modelopt_...)."""
    family = written.startswith("modelopt") if at_least(release, _FAMILY_SINCE) else written == "modelopt"
    if not family:
        return ""
    nested = "quantization" in config
    fields = config["quantization"] if nested else config
    algo = str(fields.get("quant_algo", "")) if isinstance(fields, dict) else ""
    form = "nested" if nested else "flat"
    rows = (row for row in CLAIMS if between(release, row.since, row.until) and row.where in ("", form))
    return next((row.method for row in rows if _fits(row, algo)), "")


def _fits(claim: Claim, algo: str) -> bool:
    text = algo.upper() if claim.folded else algo
    return text == claim.word if claim.equal else claim.word in text


def _deepseek_v4(config: Mapping[str, Any], written: str, release: str, model_type: str) -> str:
    types = _V41 if on("dsv4-mxfp8-linears", release) else _V4
    if model_type not in types or not known("deepseek_v4_fp8", release):
        return ""
    quark = written == "quark" and between(release, "0.27.0", "0.30.0") and _is_mxfp4(config)
    return "deepseek_v4_fp8" if quark or written in ("fp8", "deepseek_v4_fp8") else ""


def _is_mxfp4(config: Mapping[str, Any]) -> bool:
    """Whether a Quark config's global scheme is MXFP4 (0.27.0 vllm/models/deepseek_v4/quant_config.py:55)."""
    weight = (config.get("global_quant_config") or {}).get("weight")
    wanted = ("fp4", "per_group", 32)
    return isinstance(weight, dict) and tuple(weight.get(key) for key in ("dtype", "qscheme", "group_size")) == wanted


def _modelopt_algo(config: Mapping[str, Any], name: str, release: str) -> Method:
    """A ModelOpt method whose algorithm the release does not know yet is a format that it does not know."""
    fields = config.get("quantization", config)
    algo = str(fields.get("quant_algo") or "") if isinstance(fields, dict) else ""
    if algo and algo.upper() not in algos(ALGOS, release):
        return _unknown_algo(algo, release)
    return Method(name)
