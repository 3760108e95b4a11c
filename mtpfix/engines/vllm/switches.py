"""What changed in vLLM, release by release: the data that every other file here asks.

Sources name a release and a place in its wheel; `Q` is vllm/model_executor/layers/quantization, `C` is
Q/compressed_tensors. A fact that held in 0.12.0 already, the first modelled release, needs no row.
"""

from __future__ import annotations

from functools import lru_cache

from mtpfix.engines.releases import after, at_least, between, key, modelled
from mtpfix.frozen import NamedTuple

ENGINE_NAME = "vllm"
_MODELOPT = ("modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed")
_FP8 = ("fp8", "deepseek_v4_fp8")
_MIXED = ("modelopt_mixed",)
_DSV4 = ("deepseek_v4_fp8",)
_CT = ("compressed-tensors",)
_MAPPED = (*_MODELOPT, *_FP8, "compressed-tensors", "gptq", "awq", "auto-round", "quark")


class Switch(NamedTuple):
    """A behaviour that is on from a release.

    name     how the code asks for it
    methods  the methods that it touches
    since    the first release with it
    source   where it was read
    """

    name: str
    methods: tuple[str, ...]
    since: str
    source: str


SWITCHES = (
    # all methods that a class mapper rewrites
    Switch("null-rules-stripped", _MAPPED, "0.29.0", "0.29.0 vllm/model_executor/models/utils.py:163"),
    # ModelOpt
    Switch("star-split", _MODELOPT, "0.13.0", "0.13.0 Q/modelopt.py:189"),
    Switch("upper-case-algo", _MODELOPT, "0.16.0", "0.16.0 Q/modelopt.py:253"),
    Switch("mxfp8-experts", ("modelopt_mxfp8",), "0.18.0", "0.18.0 Q/modelopt.py:1466"),
    Switch("modelopt-head", _MODELOPT, "0.23.0", "0.23.0 Q/modelopt.py:177"),
    Switch("vit-projector-plain", _MODELOPT[:3], "0.23.0", "0.23.0 Q/modelopt.py:177"),
    Switch("mxfp8-ignored-layers", ("modelopt_mxfp8",), "0.24.0", "0.24.0 Q/modelopt.py:1680"),
    Switch("nvfp4-weight-only", ("modelopt_fp4",), "0.29.0", "0.29.0 Q/modelopt.py:1012"),
    Switch("ignore-or-exclude", _MODELOPT, "0.33.0", "0.33.0 Q/modelopt.py:324"),
    Switch("mixed-wrapper-names", _MIXED, "0.22.0", "0.22.0 Q/modelopt.py:2367"),
    Switch("mixed-expert-parent", _MIXED, "0.23.0", "0.23.0 Q/modelopt.py:2303"),
    Switch("mixed-known-shards", _MIXED, "0.25.0", "0.25.0 Q/modelopt.py:2408"),
    Switch("mixed-one-block-size", _MIXED, "0.30.0", "0.30.0 Q/modelopt.py:1501"),
    Switch("mixed-block-codecs", _MIXED, "0.32.0", "0.32.0 Q/modelopt.py:1543"),
    # the list test that ModelOpt, fp8 and AWQ share
    Switch(
        "fused-name",
        (*_MODELOPT, *_FP8, "awq", "moe_wna16", "fbgemm_fp8"),
        "0.24.0",
        "0.24.0 Q/utils/quant_utils.py:504",
    ),
    # fp8
    Switch("fp8-mxfp4-experts", _FP8, "0.24.0", "0.24.0 Q/fp8.py:179"),
    Switch("match-mode", _FP8, "0.28.0", "0.28.0 Q/utils/quant_utils.py:602"),
    Switch("dsv4-expert-dtype", _DSV4, "0.20.1", "0.20.1 vllm/model_executor/models/deepseek_v4.py:120"),
    Switch("dsv4-nvfp4", _DSV4, "0.22.0", "0.22.0 vllm/models/deepseek_v4/quant_config.py:27"),
    Switch("dsv4-quark", _DSV4, "0.27.0", "0.27.0 vllm/models/deepseek_v4/quant_config.py:29"),
    Switch("dsv4-mxfp8-linears", _DSV4, "0.30.0", "0.30.0 vllm/models/deepseek_v41/quant_config.py:33"),
    Switch("dsv4-ignored-experts", _DSV4, "0.32.0", "0.32.0 vllm/models/deepseek_v41/quant_config.py:37"),
    # compressed-tensors
    Switch("ct-paths-only", _CT, "0.13.0", "0.13.0 C/compressed_tensors.py:118"),
    Switch("ct-expert-format", _CT, "0.13.0", "0.13.0 C/compressed_tensors_moe.py:123"),
    Switch("ct-mxfp4", _CT, "0.14.0", "0.14.0 C/compressed_tensors.py:559"),
    Switch("ct-mxfp4-experts", _CT, "0.15.0", "0.15.0 C/compressed_tensors_moe.py:124"),
    Switch("ct-attention-groups", _CT, "0.15.0", "0.15.0 C/compressed_tensors.py:211"),
    Switch("ct-groups-optional", _CT, "0.17.0", "0.17.0 C/compressed_tensors.py:205"),
    Switch("ct-mxfp8", _CT, "0.20.0", "0.20.0 C/compressed_tensors.py:614"),
    Switch("ct-head", _CT, "0.20.0", "0.20.0 C/compressed_tensors.py:157"),
    Switch("ct-unmatched-plain", _CT, "0.21.0", "0.21.0 C/utils.py:113"),
    Switch("ct-no-sparsity", _CT, "0.22.0", "0.22.0 C/compressed_tensors.py:242"),
    Switch("ct-embedding", _CT, "0.23.0", "0.23.0 C/compressed_tensors.py:151"),
    Switch("ct-nvfp4-strict", _CT, "0.23.0", "0.23.0 C/compressed_tensors.py:692"),
    Switch("routed-experts", (*_CT, "auto-round"), "0.24.0", "0.24.0 Q/../fused_moe/routed_experts.py:44"),
    Switch("ct-odd-bits", _CT, "0.25.0", "0.25.0 C/compressed_tensors.py:685"),
    Switch("ct-int-activations", _CT, "0.26.0", "0.26.0 C/compressed_tensors.py:722"),
    Switch("ct-shards-before-class", _CT, "0.27.0", "0.27.0 C/utils.py:113"),
    Switch("fused-patterns", ("compressed-tensors", "quark"), "0.30.0", "0.30.0 Q/utils/config_utils.py:252"),
    Switch("ct-no-act-order", _CT, "0.30.0", "0.30.0 C/compressed_tensors.py:301"),
    Switch("ct-expert-names", _CT, "0.32.0", "0.32.0 C/compressed_tensors_moe/compressed_tensors_moe.py:28"),
    # GPTQ, AWQ, moe_wna16
    Switch("gptq-one-class", ("gptq", "moe_wna16"), "0.22.0", "0.22.0 Q/auto_gptq.py:104"),
    Switch("gptq-flatten", ("gptq", "moe_wna16"), "0.27.0", "0.27.0 Q/utils/gptq_utils.py:86"),
    Switch("gptq-no-act-order", ("gptq", "moe_wna16"), "0.30.0", "0.30.0 Q/utils/gptq_utils.py:23"),
    Switch("gptq-empty-is-all", ("gptq", "moe_wna16"), "0.32.0", "0.32.0 Q/utils/gptq_utils.py:120"),
    Switch("wna16-plain-experts", ("moe_wna16",), "0.13.0", "0.13.0 Q/moe_wna16.py:164"),
    Switch("wna16-packed", ("moe_wna16",), "0.30.0", "0.30.0 Q/moe_wna16.py:189"),
    # auto-round
    Switch("inc-marlin-only", ("auto-round",), "0.22.0", "0.22.0 Q/inc.py:323"),
    Switch("inc-plain-experts", ("auto-round",), "0.24.0", "0.24.0 Q/inc/inc.py:147"),
    Switch("inc-configured-shards", ("auto-round",), "0.24.0", "0.24.0 Q/inc/config_parser.py:70"),
    Switch("inc-suffix", ("auto-round",), "0.27.0", "0.27.0 Q/inc/config_parser.py:70"),
    Switch("inc-mx", ("auto-round",), "0.27.0", "0.27.0 Q/inc/inc.py:38"),
    Switch("inc-block-groups", ("auto-round",), "0.29.0", "0.29.0 Q/inc/inc.py:275"),
    Switch("inc-odd-bits", ("auto-round",), "0.30.0", "0.30.0 Q/inc/inc.py:37"),
    # Quark
    Switch("quark-expert-children", ("quark",), "0.26.0", "0.26.0 Q/quark/utils.py:26"),
    Switch("quark-text-lists", ("quark",), "0.31.0", "0.31.0 Q/quark/quark.py:133"),
)


class Known(NamedTuple):
    """A `quant_method` that vLLM knows, what this package calls it, and the releases that know it.

    The many classes for GPTQ and AWQ checkpoints share one name here: their matching is the same.
    """

    written: str
    method: str
    since: str = ""
    until: str = ""


METHODS = (
    Known("modelopt", "modelopt"),
    Known("modelopt_fp4", "modelopt_fp4"),
    Known("modelopt_mxfp8", "modelopt_mxfp8", "0.16.0"),
    Known("mxfp8", "modelopt_mxfp8", "0.24.0"),
    Known("modelopt_mixed", "modelopt_mixed", "0.17.0"),
    Known("fp8", "fp8"),
    Known("deepseek_v4_fp8", "deepseek_v4_fp8", "0.20.0"),
    Known("compressed-tensors", "compressed-tensors"),
    Known("gptq", "gptq"),
    Known("gptq_marlin", "gptq"),
    Known("auto_gptq", "gptq", "0.22.0"),
    Known("awq", "awq"),
    Known("awq_marlin", "awq"),
    Known("auto_awq", "awq", "0.24.0"),
    Known("auto-round", "auto-round"),
    Known("inc", "auto-round", "0.15.0"),
    Known("quark", "quark"),
    Known("torchao", "torchao"),
    Known("moe_wna16", "moe_wna16"),
    Known("mxfp4", "mxfp4"),
    Known("gpt_oss_mxfp4", "mxfp4", "0.20.0"),
    Known("bitsandbytes", "bitsandbytes", "", "0.27.1"),
    Known("fbgemm_fp8", "fbgemm_fp8"),
    Known("hqq", "hqq", "", "0.14.1"),
    # known to the engine, not modelled: a matcher answers `unknown`
    Known("humming", "humming", "0.20.0"),
    Known("fp_quant", "fp_quant"),
    Known("experts_int8", "experts_int8"),
    Known("ptpc_fp8", "ptpc_fp8", "", "0.18.1"),
    Known("petit_nvfp4", "petit_nvfp4", "", "0.19.1"),
    Known("gguf", "gguf", "", "0.23.0"),
)
"""Q/__init__.py of every release (`QuantizationMethods`)."""

DEPRECATED = (
    Known("auto-round", "auto-round", "0.14.0", "0.14.1"),
    Known("fbgemm_fp8", "fbgemm_fp8", "0.14.0"),
    Known("fp_quant", "fp_quant", "0.14.0"),
    Known("experts_int8", "experts_int8", "0.14.0", "0.19.1"),
    Known("ptpc_fp8", "ptpc_fp8", "0.14.0", "0.18.1"),
    Known("petit_nvfp4", "petit_nvfp4", "0.14.0", "0.19.1"),
    Known("hqq", "hqq", "0.14.0", "0.14.1"),
)
"""Refused unless a flag allows deprecated methods (0.14.0 vllm/config/model.py:867, Q/__init__.py:45)."""


class Algo(NamedTuple):
    """A ModelOpt algorithm of a method (for modelopt_mixed: of a single layer) and what the engine allocates for it."""

    name: str
    method: str
    scheme: str
    since: str
    source: str


ALGOS = (
    Algo("FP8", "modelopt", "fp8", "0.12.0", "0.12.0 Q/modelopt.py:90"),
    Algo("FP8_PER_CHANNEL_PER_TOKEN", "modelopt", "fp8-channel", "0.14.0", "0.14.0 Q/modelopt.py:105"),
    Algo("FP8_PB_WO", "modelopt", "fp8-pb", "0.14.0", "0.14.0 Q/modelopt.py:105"),
    Algo("NVFP4", "modelopt_fp4", "nvfp4", "0.12.0", "0.12.0 Q/modelopt.py:90"),
    Algo("W4A16_NVFP4", "modelopt_fp4", "nvfp4-w4a16", "0.21.0", "0.21.0 Q/modelopt.py:106"),
    Algo("MXFP8", "modelopt_mxfp8", "mxfp8", "0.16.0", "0.16.0 Q/modelopt.py:104"),
    Algo("MIXED_PRECISION", "modelopt_mixed", "", "0.17.0", "0.17.0 Q/modelopt.py:96"),
)

MIXED_LINEAR = (
    Algo("FP8", "modelopt_mixed", "fp8", "0.17.0", "0.17.0 Q/modelopt.py:1707"),
    Algo("NVFP4", "modelopt_mixed", "nvfp4", "0.17.0", "0.17.0 Q/modelopt.py:1707"),
    Algo("W4A16_NVFP4", "modelopt_mixed", "nvfp4-w4a16", "0.22.0", "0.22.0 Q/modelopt.py:2203"),
    Algo("MXFP8", "modelopt_mixed", "mxfp8", "0.25.0", "0.25.0 Q/modelopt.py:2275"),
    Algo("FP8_PB_WO", "modelopt_mixed", "fp8-pb", "0.29.0", "0.29.0 Q/modelopt.py:2179"),
    Algo("FP8_PER_CHANNEL_PER_TOKEN", "modelopt_mixed", "fp8-channel", "0.30.0", "0.30.0 Q/modelopt.py:1501"),
)

MIXED_EXPERTS = (
    *MIXED_LINEAR[:4],
    Algo("FP8_PB_WO", "modelopt_mixed", "fp8-block", "0.30.0", "0.30.0 Q/modelopt.py:1501"),
    Algo("FP8_BLOCK_SCALES", "modelopt_mixed", "fp8-block", "0.30.0", "0.30.0 Q/modelopt.py:1501"),
)

_SINCE = {switch.name: switch.since for switch in SWITCHES}


def on(name: str, release: str) -> bool:
    """Whether a release behaves so. KeyError for a switch that does not exist."""
    return at_least(release, _SINCE[name])


def known(written: str, release: str) -> str:
    """What this package calls a `quant_method` that the release knows, else ""."""
    return next((row.method for row in METHODS if row.written == written and between(release, *row[2:])), "")


def deprecated(written: str, release: str) -> bool:
    """Whether the release refuses the method unless told otherwise."""
    return any(row.written == written and between(release, *row[2:]) for row in DEPRECATED)


def algos(rows: tuple[Algo, ...], release: str) -> dict[str, Algo]:
    """The algorithms of a table that a release knows, by name."""
    return {row.name: row for row in rows if at_least(release, row.since)}


@lru_cache(maxsize=64)
def change_points(method: str) -> tuple[str, ...]:
    """Releases at which matching for a method changed, the first modelled release included, ascending."""
    first = modelled(ENGINE_NAME)[0]
    points = {switch.since for switch in SWITCHES if method in switch.methods}
    points.update(row.since for row in (*ALGOS, *MIXED_LINEAR, *MIXED_EXPERTS) if row.method == method)
    lives = [row for row in METHODS if row.method == method]
    if lives and all(row.since for row in lives):
        points.add(min((row.since for row in lives), key=key))
    if lives and all(row.until for row in lives):
        points.add(after(ENGINE_NAME, max((row.until for row in lives), key=key)))
    return (first, *sorted((point for point in points if key(point) > key(first)), key=key))
