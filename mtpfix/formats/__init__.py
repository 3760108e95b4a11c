"""The formats: one file and one line here each. The first that accepts a quantization config has it.

A file is imported when the ones before it have not accepted: most checkpoints are of the first few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from mtpfix.formats.base import ExclusionList, Format

FILES = (
    "modelopt",
    "compressed_tensors",
    "fp8",
    "gptq",
    "awq",
    "auto_round",
    "quark",
    "mxfp8",
    "w8a8_int8",
    "blockwise_int8",
    "bitsandbytes",
    "torchao",
    "fbgemm_fp8",
    "hqq",
    "modelslim",
    "listless",
)


def formats() -> Iterator[Format]:
    """Every format, in the order in which they are asked."""
    for file in FILES:
        yield from import_module(f"{__name__}.{file}").FORMATS


def format_of(value: Mapping[str, Any]) -> Format | None:
    """The format of a quantization config, or None where mtpfix has no file for it."""
    return next((known for known in formats() if known.accepts(value)), None)


def list_of(value: Mapping[str, Any]) -> tuple[Format | None, ExclusionList | None]:
    """The format of a quantization config and its exclusion list, as far as mtpfix knows them."""
    fmt = format_of(value)
    return fmt, fmt.exclusions(value) if fmt else None
