"""Which engines and releases are asked about: `vllm>=0.20,<0.26`, or the usual ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mtpfix import late, releases
from mtpfix.engines.registry import ENGINES
from mtpfix.errors import UsageError

Wanted = Mapping[str, frozenset[str]]
_BY_FORMAT = {"modelopt": ("tensorrt-llm",), "modelslim": ("vllm-ascend",)}
_SILENT = frozenset({"vllm-ascend"})  # unasked nothing is said of it but for its own format
_ONE = r"(>=|<=|==|<|>)v?((?:snapshot-)?\d+(?:\.\d+)*(?:\.?(?:post|rc|dev|a|b)\d*)?)"
_NAME = late.pattern(r"[a-z]+(?:-[a-z]+)*")
_BOUND = late.pattern(_ONE)
_RANGE = late.pattern(rf"(?:{_ONE},?)*")
_NEAR = late.pattern(r"([^\w.]*)v?(\d[\w.]*)")
# What people write for a comparison, in the spelling that is right.
_MEANT = {
    "=>": ">=", "≥": ">=", ">==": ">=", "~=": ">=", "~": ">=", "^": ">=", "=<": "<=", "≤": "<=", "<==": "<=",
    "": "==", "=": "==", "===": "==", "@": "==", ":": "==", "-": "==", "/": "==",
}  # fmt: skip


def usual(fmt: str) -> dict[str, frozenset[str]]:
    """Every modelled release of vLLM and SGLang, TensorRT-LLM for ModelOpt and vLLM-Ascend for ModelSlim."""
    names = ("vllm", "sglang", *_BY_FORMAT.get(fmt, ()))
    return {name: frozenset(releases.modelled(name)) for name in names}


def shown(fmt: str) -> tuple[str, ...]:
    """The engines that are shown unasked."""
    return tuple(name for name in ENGINES if name not in _SILENT or name in usual(fmt))


def wanted_releases(specs: Sequence[str], fmt: str) -> dict[str, frozenset[str]]:
    """The releases of each engine that a plan must satisfy, without specs the usual ones.

    Raises UsageError for a spec that names no engine, is malformed, or fits no release.
    """
    if not specs:
        return usual(fmt)
    out: dict[str, frozenset[str]] = {}
    for spec in specs:
        name, found = _chosen(spec)
        out[name] = out.get(name, frozenset()) | found
    return out


def left_out(wanted: Wanted, fmt: str) -> bool:
    """Whether any of the usual releases is not asked about."""
    return any(found - wanted.get(name, frozenset()) for name, found in usual(fmt).items())


def words(wanted: Wanted) -> str:
    """The releases as ranges: `vllm>=0.20.0,<0.26.0, sglang`."""
    return ", ".join(text for name, found in wanted.items() for text in releases.ranges(name, found))


def _chosen(spec: str) -> tuple[str, frozenset[str]]:
    text = spec.replace(" ", "")
    found = _NAME.match(text)
    name = found[0] if found else ""
    if name not in ENGINES:
        raise UsageError(f"no such engine: {spec}", subject=spec, hint=_engine_hint(text))
    if not _RANGE.fullmatch(rest := text[len(name) :]):
        raise UsageError(f"malformed range of releases: {spec}", subject=spec, hint=_range_hint(name, rest))
    return name, _fitting(name, rest, spec)


def _fitting(name: str, rest: str, spec: str) -> frozenset[str]:
    bounds, every = _BOUND.findall(rest), releases.modelled(name)
    found = frozenset(release for release in every if all(_within(release, op, bound) for op, bound in bounds))
    if not found:
        raise UsageError(
            f"no modelled release of {name} fits {spec}",
            subject=spec,
            hint=f"modelled are {every[0]} to {every[-1]}: mtpfix engines",
        )
    return found


def _engine_hint(text: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(re.split("[^a-z-]", text.lower().replace("_", "-"))[0], ENGINES, 1)
    meant = f"do you mean {near[0]}? " if near else ""
    return f"{meant}write one of {', '.join(ENGINES)}, with a range if you like: 'vllm>=0.20,<0.26'"


def _range_hint(name: str, rest: str) -> str:
    """The right spelling of what seems to be meant; else how a range is written."""
    every = _NEAR.findall(rest)
    meant = [f"{_MEANT.get(op.lstrip(','), op.lstrip(','))}{release}" for op, release in every]
    if (
        meant
        and _RANGE.fullmatch(right := ",".join(meant))
        and "".join(op + release for op, release in every) == rest.replace("v", "")
    ):
        return f"write '{name}{right}'"
    if any(rest.startswith(f",{other}") for other in ENGINES):
        return "name every engine by itself: --engine vllm --engine sglang"
    return f"compare with >=, <=, ==, < or >, several with a comma: '{name}>={releases.modelled(name)[-1]}'"


def _within(name: str, op: str, bound: str) -> bool:
    one, other = releases.key(name), releases.key(bound)
    return {">=": one >= other, "<=": one <= other, "==": one == other, "<": one < other, ">": one > other}[op]
