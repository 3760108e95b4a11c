"""What SGLang builds of a compressed-tensors group, and from which release on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.engines.sglang.switches import on
from mtpfix.frozen import dataclass

_ACTIVATION_FORMATS = ("naive-quantized", "int-quantized", "float-quantized", "nvfp4-pack-quantized")
_PACKED = "pack-quantized"
_ALWAYS = ""
_NEVER = "never"


@dataclass(frozen=True, slots=True)
class Group:
    """One config group as the engine keeps it for a target.

    activations  None where the format quantizes none
    format       the group's own format, else the config's
    """

    weights: Mapping[str, Any]
    activations: Mapping[str, Any] | None
    format: str


@dataclass(frozen=True, slots=True)
class Support:
    """The switch since which linears, and experts, of a scheme are built."""

    linear: str
    experts: str


SUPPORT = {
    "ct-nvfp4": Support(_ALWAYS, _ALWAYS),
    "ct-nvfp4a16": Support("ct-nvfp4a16", "ct-nvfp4a16"),
    "ct-mxfp4": Support(_NEVER, "ct-mxfp4-experts"),
    "ct-w4a16": Support(_ALWAYS, _ALWAYS),
    "ct-w8a16": Support(_ALWAYS, _ALWAYS),
    "ct-w8a8": Support(_ALWAYS, _NEVER),
    "ct-w4a8": Support(_NEVER, "ct-packed-activations"),
    "fp8": Support(_ALWAYS, _ALWAYS),
    "fp8-channel": Support(_ALWAYS, _ALWAYS),
    "fp8-block-ct": Support(_ALWAYS, _ALWAYS),
    "mxfp8": Support(_NEVER, _NEVER),
    "compressed-tensors": Support(_NEVER, _NEVER),
}
_PACKED_SCHEMES = ("ct-w4a16", "ct-w8a16")
_FLOAT8 = {"tensor": "fp8", "channel": "fp8-channel", "block": "fp8-block-ct"}


def group_of(value: Mapping[str, Any], config: Mapping[str, Any], release: str) -> Group:
    """A config group, read as the release reads it.

    Raises ValueError for a group without weights, AssertionError for integer weights without activations where the
    format asks for some.
    """
    weights = value.get("weights")
    if not isinstance(weights, Mapping):
        raise ValueError("a config group without weights")
    own = value.get("format") if on("ct-group-format", release) else None
    form = own if own is not None else config.get("format")
    quantizes = _quantizes_activations(form, release)
    activations = value.get("input_activations") if quantizes else None
    weight_only = ("float", "int") if on("ct-packed-activations", release) else ("float",)
    if quantizes and not activations and weights.get("type", "int") not in weight_only:
        raise AssertionError("weights without activations must be of type float")
    return Group(weights, activations or None, str(form))


def _quantizes_activations(form: Any, release: str) -> bool:
    return form in _ACTIVATION_FORMATS or (form == _PACKED and on("ct-packed-activations", release))


def scheme_of(group: Group) -> str:
    """The scheme's name, whether or not a release builds it."""
    weights, activations = group.weights, group.activations
    kind, bits, strategy = weights.get("type", "int"), weights.get("num_bits", 8), weights.get("strategy")
    size = weights.get("group_size")
    if strategy is None:
        strategy = "group" if size and size > 0 else "channel" if size == -1 else "tensor"
    if kind == "float" and bits == 4:
        if strategy == "tensor_group" and size == 16:
            return "ct-nvfp4" if activations else "ct-nvfp4a16"
        return "ct-mxfp4" if strategy == "group" and size == 32 else "compressed-tensors"
    if kind == "float" and bits == 8:
        return "mxfp8" if strategy == "group" and size == 32 else _FLOAT8.get(strategy, "compressed-tensors")
    if not activations:
        return {4: "ct-w4a16", 8: "ct-w8a16"}.get(bits, "compressed-tensors")
    return {4: "ct-w4a8", 8: "ct-w8a8"}.get(bits, "compressed-tensors")


def is_mxfp4(group: Group | None) -> bool:
    """Whether experts of a group bypass the list. (sglang 0.5.17 compressed_tensors.py:573)"""
    return group is not None and scheme_of(group) == "ct-mxfp4" and bool(group.weights.get("symmetric", True))


def built_scheme(group: Group, experts: bool, release: str) -> str:
    """The scheme that the release builds of a group.

    Raises what the release raises where it has none: ImportError, AttributeError or NotImplementedError.
    """
    scheme = scheme_of(group)
    if scheme == "ct-mxfp4" and _is_taken_for_int4(group, experts, release):
        return "ct-w4a16"
    problem = _complaint(scheme, group, experts, release)
    if not problem:
        return scheme
    weight_only = not group.activations and not on("ct-nvfp4a16", release)
    if weight_only and group.weights.get("strategy") in ("group", "channel") and _takes_sign(group, release):
        raise ImportError(problem)
    if (weight_only and group.format in _ACTIVATION_FORMATS) or (experts and not group.activations):
        raise AttributeError(problem)
    raise NotImplementedError(problem)


def _is_taken_for_int4(group: Group, experts: bool, release: str) -> bool:
    """Before the type of 4-bit groups was looked at, MXFP4 passed for integers wherever the format allowed it."""
    if experts:
        return not on("ct-mxfp4-experts", release)
    return group.format == _PACKED and not on("ct-nvfp4a16", release)


def _takes_sign(group: Group, release: str) -> bool:
    return bool(group.weights.get("symmetric", True)) or on("ct-asymmetric", release)


def _complaint(scheme: str, group: Group, experts: bool, release: str) -> str:
    """Why the release cannot build a scheme; "" where it can."""
    row = SUPPORT[scheme]
    since = row.experts if experts else row.linear
    if since == _NEVER or (since and not on(since, release)):
        return f"no compressed-tensors scheme of this release fits {scheme}"
    if experts and scheme in _FLOAT8.values() and not group.activations:
        return f"{scheme} experts need quantized activations"
    if not experts and scheme not in _PACKED_SCHEMES and not _quantizes_activations(group.format, release):
        return f"{scheme} does not go with the format {group.format}"
    packed_as_such = group.format == _PACKED or experts
    if scheme in _PACKED_SCHEMES and not (packed_as_such and _takes_sign(group, release)):
        return f"{scheme} needs the format {_PACKED} and symmetric weights"
    return ""
