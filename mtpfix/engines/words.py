"""What an engine prints when a stored tensor does not fit its parameter: the last line of the traceback.

Only what follows from names and shapes alone. What a family's own loader says stands in its file (`error` of a fault).
"""

from __future__ import annotations

# Linears of one shard whose parameter is cut along the outputs (ColumnParallelLinear in vllm-0.33.0
# model_executor/models/qwen3_next_mtp.py and deepseek_v2.py).
_COLUMNS = frozenset({"fc", "q_b_proj", "kv_b_proj"})
_DOWN = frozenset({"down_proj", "w2"})

# What is said where a method refuses to build a kind of layer, by engine, method and layer: where it is more than the
# exception's name and the same whatever the list. sglang-0.5.9 and 0.5.23 srt/layers/linear.py (no method for a
# linear), srt/layers/quantization/mxfp4.py (a head is taken for attention).
REFUSALS = {
    ("sglang", "mxfp4", "linear"): "AssertionError: assert self.quant_method is not None",
    ("sglang", "mxfp4", "lm_head"): "NotImplementedError: Mxfp4 attention layer is not implemented",
}


def full_into_nvfp4(engine: str, layer: str, runtime: str, name: str, shape: tuple[int, ...]) -> str:
    """The words for a full-precision matrix (out, in) that meets a parameter of two values a byte; "" where unknown.

    layer    the kind of module that is built (`linear`, `moe`, ...)
    runtime  the name that it is built under; name: the stored module's
    """
    leaf = name.rpartition(".")[2]
    if len(shape) != 2 or engine not in ("vllm", "sglang"):
        return ""
    if layer == "moe":
        return _expert(shape[0] if engine == "sglang" and leaf in _DOWN else shape[1])
    if layer != "linear" or engine != "vllm":
        return ""
    built = runtime.rpartition(".")[2]
    # An assertion without a message: the traceback shows the line. vllm-0.33.0 model_executor/parameter.py:150-200.
    if built != leaf:
        return "AssertionError: assert param_data.shape == loaded_weight.shape"
    return "AssertionError: assert self.data.shape == loaded_weight.shape" if built in _COLUMNS else ""


def _expert(width: int) -> str:
    """What copying into an expert's slice says. SGLang cuts down projections to the parameter's width and stops at the
    projections up, which are as wide as a down projection is high.

    vllm-0.33.0 model_executor/layers/fused_moe/routed_experts.py:629,
    sglang-0.5.23 srt/layers/moe/fused_moe_triton/layer.py:879
    """
    sizes = f"The size of tensor a ({width // 2}) must match the size of tensor b ({width})"
    return f"RuntimeError: {sizes} at non-singleton dimension 1"
