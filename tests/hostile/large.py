"""Files that are only large: lists, dictionaries and indexes of up to a million entries, each with a name.

`beyond` are above a limit of the program and refused; `within` are the longest that it reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import combinations, islice
from typing import Any

from .configs import Config, at, told

MILLION = 1_000_000
CONFIG, SIDECAR, INDEX = "config.json", "hf_quant_config.json", "model.safetensors.index.json"
DESCRIPTION = "quant_model_description.json"
# Of MOST_ENTRIES and the like in mtpfix/checkpoint/limits.py, of MAX_VALUES in mtpfix/checkpoint/jsonfiles.py.
ENTRIES, PATTERNS, TARGETS, GROUPS, VALUES, ROWS = 10_000, 1_000, 2_000, 100, 410_000, 400_000
WEIGHTS = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}

Case = tuple[str, str, Callable[[], bytes]]  # what it is, the file, its bytes


def names(count: int) -> list[str]:
    return [f"model.layers.{at}.mlp.experts.{at % 256}.up_proj" for at in range(count)]


def stars(count: int) -> list[str]:
    return [f"*{at % 10}*{at}*proj*" for at in range(count)]


def regexes(count: int, front: str = "re:") -> list[str]:
    return [f"{front}.*m{at}.*x" for at in range(count)]


def beginnings(count: int, front: str = "re:") -> list[str]:
    """Regular expressions that are as plain as those of exporters."""
    return [rf"{front}model\.layers\.{at}\..*" for at in range(count)]


def every(keys: list[str], value: dict[str, Any]) -> dict[str, Any]:
    return dict.fromkeys(keys, value)


def quantization(config: Config, method: str, key: str, value: Any) -> bytes:
    return told(at(at(config, "quantization_config/quant_method", method), f"quantization_config/{key}", value))


def grouped(config: Config, groups: list[list[str]]) -> bytes:
    base = at(at(config, "quantization_config/quant_method", "compressed-tensors"), "quantization_config/ignore", [])
    base = at(base, "quantization_config/format", "nvfp4-pack-quantized")
    held = {f"group_{number}": {"targets": targets, "weights": WEIGHTS} for number, targets in enumerate(groups)}
    return told(at(base, "quantization_config/config_groups", held))


def layered(config: Config, count: int) -> bytes:
    base = at(config, "quantization_config/quant_algo", "MIXED_PRECISION")
    return quantization(base, "modelopt", "quantized_layers", every(names(count), {"quant_algo": "NVFP4"}))


def sidecar(**fields: Any) -> bytes:
    body = {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16, **fields}
    return told({"producer": {"name": "modelopt", "version": "0.33.0"}, "quantization": body})


def covers(count: int) -> list[str]:
    """Patterns that all match a layer's modules, so that each hides those behind it."""
    picked = (each for size in range(1, 7) for each in combinations("model.layers", size))
    return [f"*{'*'.join(each)}*" for each in islice(dict.fromkeys(picked), count)]


def dotted(count: int, front: str = "") -> list[str]:
    """The same as regular expressions."""
    return [front + each.replace(".", r"\.").replace("*", ".*") for each in covers(count)]


def index(count: int, files: int = 1, lost: list[str] | None = None) -> bytes:
    shards = ["model.safetensors", *(f"s{at}.safetensors" for at in range(1, files))]
    named = enumerate(names(count) if lost is None else lost)
    return told({"weight_map": {f"{name}.weight": shards[at % files] for at, name in named}})


def _lists(config: Config, entries: int, patterns: int) -> Iterator[Case]:
    """Every list of every format, of plain names and of patterns."""
    few = min(entries, patterns)
    rows: tuple[tuple[str, str, Callable[[int], Any], int], ...] = (
        ("modelopt", "ignore", names, entries),
        ("modelopt", "ignore", lambda count: [f"{name}*" for name in names(count)], entries),
        ("modelopt", "ignore", stars, patterns),
        ("compressed-tensors", "ignore", names, entries),
        ("compressed-tensors", "ignore", regexes, patterns),
        ("compressed-tensors", "ignore", beginnings, few),
        ("fp8", "modules_to_not_convert", names, entries),
        ("awq", "modules_to_not_convert", names, entries),
        ("quark", "exclude", names, entries),
        ("quark", "exclude", regexes, patterns),
        ("quark", "layer_quant_config", lambda count: every(names(count), {"weight": {"dtype": "fp8_e4m3"}}), entries),
        ("gptq", "dynamic", lambda count: every(regexes(count, "-:"), {}), patterns),
        ("gptq", "dynamic", lambda count: every(beginnings(count, "-:"), {}), few),
        ("modelopt", "ignore", covers, patterns),
        ("compressed-tensors", "ignore", lambda count: dotted(count, "re:"), patterns),
        ("gptq", "dynamic", lambda count: every(dotted(count, "-:"), {}), patterns),
        ("gptq", "dynamic", lambda count: every([f"-:{each}" for each in covers(count)], {}), patterns),
        ("auto-round", "extra_config", lambda count: every(dotted(count), {"bits": 16}), patterns),
        ("auto-round", "extra_config", lambda count: every(names(count), {"bits": 16}), entries),
        ("auto-round", "extra_config", lambda count: every(regexes(count, ""), {"bits": 16}), patterns),
    )
    for number, (method, key, made, count) in enumerate(rows):
        yield (
            f"{method} {key} {number}: {count:,}",
            CONFIG,
            lambda row=(method, key, made, count): quantization(config, *row[:2], row[2](row[3])),
        )
    yield f"layers: {entries:,}", CONFIG, lambda: layered(config, entries)
    yield f"sidecar names: {entries:,}", SIDECAR, lambda: sidecar(exclude_modules=names(entries))
    yield f"sidecar patterns: {patterns:,}", SIDECAR, lambda: sidecar(exclude_modules=stars(patterns))
    yield (
        f"sidecar layers: {entries:,}",
        SIDECAR,
        lambda: sidecar(quant_algo="MIXED_PRECISION", quantized_layers=every(names(entries), {"quant_algo": "NVFP4"})),
    )


def within(config: Config) -> Iterator[Case]:
    """The longest lists that are read."""
    yield from _lists(config, ENTRIES, PATTERNS)
    yield "targets", CONFIG, lambda: grouped(config, [names(TARGETS)])
    yield "groups", CONFIG, lambda: grouped(config, [[name] for name in names(GROUPS)])
    yield "ghosts", INDEX, lambda: index(VALUES)
    yield "ghosts, as many as go", INDEX, lambda: index(99_000)
    yield "files that are missing", INDEX, lambda: index(VALUES, 9000)
    yield (
        "files of a draft that are missing",
        INDEX,
        lambda: index(VALUES, 9000, [f"mtp.layers.0.mlp.experts.{at}.up_proj" for at in range(VALUES)]),
    )
    yield (
        "names of layers that are missing",
        INDEX,
        lambda: index(0, 9000, [f"model.layers.{at}.x" for at in range(VALUES)]),
    )
    yield "description", DESCRIPTION, lambda: told({f"{name}.weight": "W8A8" for name in names(ROWS)})
    for key, value in (("architectures", "X"), ("layer_types", "full_attention"), ("x", {}), ("y", [])):
        yield key, CONFIG, lambda row=(key, value): told(at(config, row[0], [row[1]] * (VALUES // 2)))
    digits = ",".join(["9" * 4000] * 2000)
    yield "digits", CONFIG, lambda: told(at(config, "x", "@")).replace(b'"@"', f"[{digits}]".encode())
    yield "a text of 1 MB, 20 times", CONFIG, lambda: told(at(config, "x", ["y" * MILLION] * 20))


def beyond(config: Config) -> Iterator[Case]:
    """What is refused."""
    yield from _lists(config, MILLION, 50_000)
    yield "targets", CONFIG, lambda: grouped(config, [names(MILLION)])
    yield "groups", CONFIG, lambda: grouped(config, [[name] for name in names(100_000)])
    yield "ghosts", INDEX, lambda: index(MILLION)
    yield "files that are missing", INDEX, lambda: index(VALUES, 200_000)
    yield "description", DESCRIPTION, lambda: told({f"{name}.weight": "W8A8" for name in names(MILLION)})
    yield "one entry, a million times", CONFIG, lambda: quantization(config, "modelopt", "ignore", ["a"] * MILLION)
    for number, value in enumerate(("X", {}, [], 0)):
        yield f"values {number}", CONFIG, lambda value=value: told(at(config, "x", [value] * 4 * MILLION))
    good = json.dumps(config).encode()
    yield "200 MB of blanks", CONFIG, lambda: good + b" " * 200_000_000
    yield "a text of 100 MB", CONFIG, lambda: good[:-1] + b',"x":"' + b"y" * 100_000_000 + b'"}'
    yield "60 MB and an emoji", INDEX, lambda: good[:-1] + b',"x":"' + b"y" * 60_000_000 + "\U0001f600".encode() + b'"}'
    yield "texts of 60 MB", CONFIG, lambda: told(at(config, "x", ["y" * MILLION] * 60))
