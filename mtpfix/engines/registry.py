"""The engines: one package or file and one line here each."""

from __future__ import annotations

from collections.abc import Mapping

from mtpfix.engines import sglang, tensorrt_llm, transformers, vllm, vllm_ascend
from mtpfix.engines.base import Engine

ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (vllm.ENGINE, sglang.ENGINE, tensorrt_llm.ENGINE, transformers.ENGINE, vllm_ascend.ENGINE)
}
