"""What engines do with a tensor that lies in two files, and how a file has to be called. Pure.

- vLLM and SGLang open the files that the index names, all of them, and load every tensor that lies in them, whatever
  the index says of it (`filter_duplicate_safetensors_files`, `safetensors_weights_iterator`). A second copy is loaded
  over the first, if it has the shape of the parameter; if not, loading stops.
- The order of files: vLLM from 0.16.0 by natural order of their names; SGLang from 0.5.13 by the order of their texts
  (SGLANG_SORT_WEIGHT_FILES is 0 there, and -1 in effect before). Earlier releases take the directory's own order.
- SGLang adds `mtp.safetensors` for GLM-4 MoE with draft layers if the index does not name it, as the last file
  (`maybe_add_mtp_safetensors`, 0.5.9 to 0.5.23).
- TensorRT-LLM loads every *.safetensors of the folder and asks no index (`HfWeightLoader.load_weights`).

Read in vllm-0.12.0 to vllm-0.33.0 model_executor/model_loader/weight_utils.py, sglang-0.5.9 to sglang-0.5.23
srt/model_loader/{loader,weight_utils}.py, tensorrt-llm _torch/models/checkpoints/hf/weight_loader.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from mtpfix.engines.openings import OPENINGS

SUFFIX = ".safetensors"
# What each engine does, in words: with old copies that have another dtype or shape, with a file that SGLang adds, with
# one that the index names no longer.
UNLIKE = (
    "vLLM and SGLang load every tensor of the files that the index names, whatever it says of it, and stop on these; "
    "TensorRT-LLM does so with every file of the folder; transformers takes the copy of the file that sorts last, the "
    "new one"
)
UNASKED = (
    "SGLang loads this file last for this model, although no index names it, and the old tensors over the new ones; "
    "vLLM and transformers do not open it, TensorRT-LLM opens every file of the folder"
)
UNNAMED = (
    "vLLM, SGLang and transformers do not open it; TensorRT-LLM opens every file of the folder, and finds the old "
    "tensors, too"
)
_ADDED = "mtp.safetensors"
_ADDED_FOR = ("Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM")
_DIGITS = re.compile(r"(\d+)")


def is_added_unasked(name: str, architectures: Iterable[str]) -> bool:
    """Whether SGLang loads a file that the index does not name."""
    return name == _ADDED and any(found in _ADDED_FOR for found in architectures)


def after(name: str) -> str:
    """What each engine does with a file that comes last and holds tensors of others once more, in the same shape."""
    return (
        f"vLLM since {_since('vllm')} and SGLang since {_since('sglang')} read {name} last, so that the new ones stay, "
        "as in transformers; before, the folder's own order decides, and in TensorRT-LLM none does"
    )


def _since(engine: str) -> str:
    return next(row.span.since for row in OPENINGS if row.engine == engine and row.order != "any")


def last_name(taken: Collection[str], read: Collection[str]) -> str:
    """A name for a new shard that no file has, and that comes after those that are read, in every engine's order."""
    return next(name for name in _candidates(read) if name not in taken and _comes_last(name, read))


def _candidates(read: Collection[str]) -> Iterator[str]:
    stems = ["model", *sorted((name.removesuffix(SUFFIX) for name in read), reverse=True), "zz"]
    for number in range(1, 1000):
        for stem in stems:
            yield f"{stem}_mtp{f'_{number}' if number > 1 else ''}{SUFFIX}"
    while True:  # a file of the greatest name there is, with the longest one after it
        stems = [f"z{stem}" for stem in stems]
        yield from (f"{stem}_mtp{SUFFIX}" for stem in stems)


def _comes_last(name: str, read: Iterable[str]) -> bool:
    return all(other < name and _natural(other) < _natural(name) for other in read)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """vLLM's key (`_natural_sort_key`), numbers before texts where it would fail on comparing them."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in _DIGITS.split(name)]
