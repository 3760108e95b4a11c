"""compressed-tensors: what the engine allocates for a config group.

Read at vllm-0.33.0 C/compressed_tensors.py:419-930 (linears) and C/compressed_tensors_moe/compressed_tensors_moe.py
(experts); defaults of a group at compressed-tensors 0.17.0 quantization/quant_args.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.engines.vllm.answers import Refusal
from mtpfix.engines.vllm.switches import on
from mtpfix.frozen import dataclass

_ACTIVATION_FORMATS = ("naive-quantized", "int-quantized", "float-quantized", "nvfp4-pack-quantized")
_STRATEGIES = ("tensor", "channel", "group", "block", "token", "tensor_group", "attn_head")
_FLOAT8 = {"tensor": "fp8", "channel": "fp8-channel", "block": "fp8-block-ct"}


@dataclass(frozen=True, slots=True)
class Args:
    """How weights or activations are quantized."""

    num_bits: int
    kind: str
    symmetric: bool
    group_size: int | None
    strategy: str
    dynamic: bool
    byte_scales: bool
    act_order: str

    @property
    def is_float(self) -> bool:
        return self.kind == "float"


@dataclass(frozen=True, slots=True)
class Group:
    """What a target stands for. Two groups with the same content are equal, whatever they are called."""

    weights: Args
    inputs: Args | None
    outputs: Args | None
    format: str | None


def parse_args(value: Any) -> Args:
    """The arguments with their defaults; raises ValidationError where the library does."""
    if not isinstance(value, Mapping):
        raise Refusal("ValidationError", "a config group has no quantization arguments")
    size = value.get("group_size")
    if size is not None and not isinstance(size, int):
        raise Refusal("ValidationError", "group_size is no integer")
    strategy = value.get("strategy") or _implied(size)
    kind, bits = str(value.get("type", "int")).lower(), value.get("num_bits", 8)
    if str(strategy).lower() not in _STRATEGIES or kind not in ("int", "float") or not isinstance(bits, int):
        raise Refusal("ValidationError", "unknown quantization arguments in a config group")
    return Args(
        num_bits=bits,
        kind=kind,
        symmetric=bool(value.get("symmetric", True)),
        group_size=size,
        strategy=str(strategy).lower(),
        dynamic=bool(value.get("dynamic", False)),
        byte_scales=str(value.get("scale_dtype")).removeprefix("torch.") == "uint8",
        act_order="group" if value.get("actorder") is True else str(value.get("actorder") or "").lower(),
    )


def _implied(group_size: int | None) -> str:
    if group_size is None:
        return "tensor"
    return "channel" if group_size == -1 else "group"


def parse_group(value: Mapping[str, Any], default_format: Any, release: str) -> Group:
    """A config group as the engine keeps it. Raises where the engine refuses it."""
    weights = parse_args(value.get("weights"))
    if weights.act_order in ("group", "dynamic") and on("ct-no-act-order", release):
        raise Refusal("ValueError", "activation order (actorder) is no longer supported")
    own, inputs, outputs = value.get("format"), value.get("input_activations"), value.get("output_activations")
    shown = default_format if own is None else own
    if not inputs and shown in _ACTIVATION_FORMATS and not weights.is_float:
        raise Refusal("AssertionError", "a format with activations, integer weights and no input_activations")
    return Group(weights, parse_args(inputs) if inputs else None, parse_args(outputs) if outputs else None, shown)


def _is_nvfp4(args: Args | None) -> bool:
    return args is not None and (args.strategy, args.group_size) == ("tensor_group", 16) and _symmetric_float(args, 4)


def _is_mx(args: Args, bits: int) -> bool:
    return (args.strategy, args.group_size) == ("group", 32) and _symmetric_float(args, bits)


def _symmetric_float(args: Args, bits: int) -> bool:
    return args.is_float and args.num_bits == bits and args.symmetric


def _is_weight_only(group: Group) -> bool:
    return group.inputs is None and group.weights.strategy in ("channel", "group") and not group.weights.dynamic


def _float8(group: Group, *, bare: bool) -> str | None:
    """The float scheme of static symmetric weights. `bare`: activations may be missing or of any kind."""
    weights, inputs = group.weights, group.inputs
    fits = weights.is_float and weights.symmetric and not weights.dynamic
    scheme = _FLOAT8.get(weights.strategy) if fits else None
    if scheme is None or bare:
        return scheme
    static = inputs is not None and inputs.symmetric and inputs.strategy == "tensor"
    return scheme if inputs is not None and inputs.is_float and (inputs.dynamic or static) else None


def _int8(group: Group, *, static: bool) -> bool:
    weights, inputs = group.weights, group.inputs
    if inputs is None or not (weights.num_bits == inputs.num_bits == 8) or weights.dynamic or not weights.symmetric:
        return False
    per_tensor = static and inputs.strategy == "tensor" and not inputs.dynamic
    per_token = inputs.strategy == "token" and inputs.dynamic
    return weights.strategy in ("tensor", "channel") and (per_tensor or per_token)


def _int4_int8(group: Group) -> bool:
    weights, inputs = group.weights, group.inputs
    if inputs is None or weights.is_float or inputs.is_float or not weights.symmetric or weights.dynamic:
        return False
    bits = (weights.num_bits, inputs.num_bits) == (4, 8)
    return bits and weights.strategy in ("group", "channel") and inputs.strategy == "token" and inputs.dynamic


def _int4_float8(group: Group) -> bool:
    weights, inputs = group.weights, group.inputs
    if inputs is None or weights.is_float or not inputs.is_float or not (weights.symmetric and inputs.symmetric):
        return False
    bits = (weights.num_bits, inputs.num_bits) == (4, 8)
    return bits and weights.strategy == "group" and inputs.strategy == "token" and inputs.dynamic


def _packed_int_activations(group: Group, release: str) -> bool:
    weights, inputs = group.weights, group.inputs
    if inputs is None or weights.is_float or inputs.is_float or weights.dynamic:
        return False
    if weights.strategy not in ("channel", "group"):
        return False
    outputs = group.outputs
    static = outputs is not None and not outputs.dynamic and not inputs.dynamic and inputs.num_bits == 8
    if static and group.format in ("pack-quantized", "int-quantized") and on("ct-embedding", release):
        return True
    dynamic = inputs.dynamic and inputs.symmetric and inputs.strategy in ("token", "group")
    return dynamic and group.format == "pack-quantized" and on("ct-int-activations", release)


def linear_scheme(group: Group, release: str) -> str:
    """What a linear layer of this group allocates. Raises where the engine has no scheme for it."""
    weights = group.weights
    if _is_nvfp4(weights):
        return _linear_nvfp4(group, release)
    if _is_mx(weights, 4) and on("ct-mxfp4", release):
        return "ct-mxfp4"
    if _is_mx(weights, 8) and weights.byte_scales and on("ct-mxfp8", release):
        return "mxfp8"
    if _int4_float8(group) or _packed_int_activations(group, release):
        return f"ct-w{weights.num_bits}a8"
    if _is_weight_only(group) and group.format == "pack-quantized":
        if weights.num_bits in (4, 8) or on("ct-odd-bits", release):
            return f"ct-w{weights.num_bits}a16"
    elif group.format in _ACTIVATION_FORMATS:
        scheme = _float8(group, bare=True) or ("ct-w8a8" if _int8(group, static=True) else None)
        scheme = scheme or ("ct-w4a8" if _int4_int8(group) else None)
        if scheme:
            return scheme
    raise Refusal("NotImplementedError", "no compressed-tensors scheme fits the config group")


def _linear_nvfp4(group: Group, release: str) -> str:
    if group.inputs is None:
        return "ct-nvfp4a16"
    if _is_nvfp4(group.inputs):
        if group.format in _ACTIVATION_FORMATS or on("ct-nvfp4-strict", release):
            return "ct-nvfp4"
    elif on("ct-nvfp4-strict", release):
        raise Refusal("ValueError", "NVFP4 weights with activations that are not NVFP4")
    raise Refusal("NotImplementedError", "no compressed-tensors scheme fits the config group")


def experts_scheme(group: Group, release: str) -> str:
    """What the experts of this group allocate. Raises where the engine has no scheme for them."""
    weights = group.weights
    if _is_mx(weights, 4) and on("ct-mxfp4-experts", release):
        return "ct-mxfp4"
    if _is_mx(weights, 8) and weights.byte_scales and on("ct-mxfp8", release):
        return "mxfp8"
    if _is_weight_only(group):
        bits = range(2, 9) if on("ct-odd-bits", release) else (4, 8)
        if on("ct-expert-format", release) and (weights.num_bits not in bits or group.format != "pack-quantized"):
            raise Refusal("ValueError", "experts are weight-only in pack-quantized format, or not at all")
        return f"ct-w{weights.num_bits}a16"
    if _is_nvfp4(weights):
        return _experts_nvfp4(group, release)
    scheme = _float8(group, bare=False) or ("ct-w8a8" if _int8(group, static=False) else None)
    scheme = scheme or (f"ct-w{weights.num_bits}a8" if _int4_int8(group) or _int4_float8(group) else None)
    if scheme is None:
        raise Refusal("RuntimeError", "no scheme for experts fits the config group")
    return scheme


def _experts_nvfp4(group: Group, release: str) -> str:
    if _is_nvfp4(group.inputs):
        return "ct-nvfp4"
    if group.inputs is None and on("ct-mxfp4", release):
        return "ct-nvfp4a16"
    kind = "ValueError" if on("ct-mxfp4", release) else "RuntimeError"
    raise Refusal(kind, "NVFP4 experts with activations that are not NVFP4")


def embedding_scheme(group: Group, release: str) -> str:
    """What an embedding allocates; the engine takes weight-only integers and raises for anything else."""
    weights = group.weights
    if weights.is_float or weights.dynamic or weights.strategy not in ("channel", "group"):
        raise Refusal("ValueError", "embeddings are weight-only integers, or not quantized")
    return f"ct-w{weights.num_bits}a16"
