"""The formats: one file and one line here each. The first that accepts a quantization config has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.auto_round import AutoRound
from mtpfix.formats.awq import Awq
from mtpfix.formats.base import Format
from mtpfix.formats.bitsandbytes import BitsAndBytes
from mtpfix.formats.blockwise_int8 import BlockwiseInt8
from mtpfix.formats.compressed_tensors import CompressedTensors
from mtpfix.formats.fbgemm_fp8 import FbgemmFp8
from mtpfix.formats.fp8 import Fp8
from mtpfix.formats.gptq import Gptq
from mtpfix.formats.hqq import Hqq
from mtpfix.formats.listless import LISTLESS
from mtpfix.formats.modelopt import ModelOpt
from mtpfix.formats.modelslim import ModelSlim
from mtpfix.formats.mxfp8 import Mxfp8
from mtpfix.formats.quark import Quark
from mtpfix.formats.torchao import TorchAo
from mtpfix.formats.w8a8_int8 import W8A8Int8

FORMATS: tuple[Format, ...] = (
    ModelOpt(),
    CompressedTensors(),
    Fp8(),
    Gptq(),
    Awq(),
    AutoRound(),
    Quark(),
    Mxfp8(),
    W8A8Int8(),
    BlockwiseInt8(),
    BitsAndBytes(),
    TorchAo(),
    FbgemmFp8(),
    Hqq(),
    ModelSlim(),
    *LISTLESS,
)


def format_of(value: Mapping[str, Any]) -> Format | None:
    """The format of a quantization config, or None where mtpfix has no file for it."""
    return next((known for known in FORMATS if known.accepts(value)), None)
