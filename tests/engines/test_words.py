"""The words that mtpfix predicts, held against those that real loads ended with."""

from __future__ import annotations

import re

import pytest
from conformance import report_of
from records import Record, Run, load_all

from mtpfix.engines.words import full_into_nvfp4

SHAPES = re.compile(r"The size of tensor a|AssertionError: ?$")
RUNS = [
    pytest.param(record, run, id=f"{record.name}-{run.engine}-{run.part}")
    for record in load_all()
    for run in record.runs
    if run.verdict == "fails" and SHAPES.search(run.error)
]


@pytest.mark.parametrize(("record", "run"), RUNS)
def test_words_that_are_predicted_are_those_that_were_recorded(record: Record, run: Run) -> None:
    """An assertion without words is recorded as such; the line that it stands on is in the traceback."""
    report = report_of(record.name)
    (row,) = (
        row
        for row in report.engines
        if (row.engine, row.part) == (run.engine, run.part) and run.version in row.releases
    )
    recorded = "AssertionError: assert" if run.error.startswith("AssertionError") else run.error
    assert row.error == "" or row.error.startswith(recorded)


def test_most_of_them_are_predicted() -> None:
    assert len(RUNS) >= 15


@pytest.mark.parametrize(
    ("engine", "layer", "runtime", "name", "shape", "words"),
    [
        # mtp.fc of Qwen3-Next, as reported for vLLM: parameter.py load_column_parallel_weight.
        ("vllm", "linear", "mtp.fc", "mtp.fc", (2048, 4096), "AssertionError: assert self.data.shape"),
        ("vllm", "linear", "m.qkv_proj", "m.q_proj", (64, 128), "AssertionError: assert param_data.shape"),
        ("vllm", "moe", "m.experts", "m.experts.0.down_proj", (64, 32), "RuntimeError: The size of tensor a (16)"),
        ("sglang", "moe", "m.experts", "m.experts.0.down_proj", (64, 32), "RuntimeError: The size of tensor a (32)"),
        ("sglang", "moe", "m.experts", "m.experts.0.up_proj", (32, 64), "RuntimeError: The size of tensor a (32)"),
    ],
)
def test_the_widths_are_those_of_the_tensor_that_is_met_first(
    engine: str, layer: str, runtime: str, name: str, shape: tuple[int, int], words: str
) -> None:
    assert full_into_nvfp4(engine, layer, runtime, name, shape).startswith(words)


@pytest.mark.parametrize(
    ("engine", "layer", "runtime", "shape"),
    [
        ("tensorrt-llm", "moe", "m.experts", (64, 32)),
        ("vllm", "lm_head", "lm_head", (64, 32)),
        ("vllm", "linear", "m.o_proj", (64, 32)),
        ("sglang", "linear", "m.o_proj", (64, 32)),
        ("vllm", "moe", "m.experts", (4, 64, 32)),
    ],
)
def test_nothing_is_said_where_nothing_is_known(engine: str, layer: str, runtime: str, shape: tuple[int, ...]) -> None:
    assert full_into_nvfp4(engine, layer, runtime, runtime, shape) == ""
