"""A draft repository in vLLM: built and loaded beside a target that is made up from the draft's text config.

`main([CHECKPOINT])` prints one JSON object like vllm_load.py and vllm_match.py together: `engine_config`, `draft`
(verdict, exception, never_written, `model`, `modules`). Runs inside warm.py, after the drive scripts' boot.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import vllm_boot
import vllm_load
import vllm_match

TARGETS = {"Gemma4AssistantForCausalLM": "Gemma4ForCausalLM"}


def target_config(draft: Path) -> dict[str, Any]:
    """A plain target of the same width."""
    config = json.loads((draft / "config.json").read_text("utf-8"))
    target = {**config["text_config"], "num_kv_shared_layers": 0}
    return {**target, "architectures": [TARGETS[config["architectures"][0]]]}


def main(arguments: list[str]) -> int:
    draft = Path(arguments[0])
    vllm_boot.claim_stdout()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(target_config(draft)), "utf-8")
        vllm_boot.emit(_run(folder, str(draft)))
    return 0


def _run(target: str, draft: str) -> dict[str, Any]:
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.model_loader import get_model
    from vllm.model_executor.model_loader.utils import get_model_architecture

    spec_config = {"model": draft, "method": "mtp", "num_speculative_tokens": 1}
    config = vllm_boot.engine_config(target, spec=False, extra={"speculative_config": spec_config})
    spec = config.speculative_config
    quant = VllmConfig.get_quantization_config(spec.draft_model_config, config.load_config)
    recorder = vllm_match.Recorder(type(quant)) if quant is not None else None
    vllm_load.install_hooks(vllm_load.LOG)
    with set_current_vllm_config(config), vllm_boot.CUDA_TO_CPU():
        vllm_boot.init_parallel()
        vllm_load.run_one(lambda: get_model(vllm_config=config), False, construct_only=True)
        proposer = object.__new__(vllm_load.proposer_class(spec))
        proposer.vllm_config, proposer.speculative_config = config, spec
        proposer.draft_model_config = spec.draft_model_config
        part = vllm_load.run_one(proposer._get_model, False)
    part["model"] = vllm_match.class_info(get_model_architecture(spec.draft_model_config)[0])
    if vllm_load.LOG.get("model") is not None:
        part["modules"] = vllm_match.modules_of(vllm_load.LOG["model"], recorder.calls if recorder else [])
    return {"engine_config": {"ok": True, "quantization": spec.draft_model_config.quantization}, "draft": part}
