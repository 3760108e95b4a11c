"""Config files that no exporter wrote: bytes of config.json, of the index and of the sidecar, each with a name."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

Config = dict[str, Any]
MANY = 10_000

REDOS = (
    "re:^(a+)+$", "re:(.*)*mtp", "re:(mtp|mtp)*x", "re:" + "(.*)" * 30 + "x", "re:" + "a?" * 5000,
    "re:(?:x{0,99}){0,99}!", "re:^" + "(" * 2000 + ")" * 2000, "re:[", "re:(?P<a>.)(?P=a)*$",
    "re:" + "|" * 3000, "re:.*" * 40 + "y",
    "re:\\", "re:",
    "re:(?s:.*)+?!", r"re:(\w+\.)+weight$", r"re:^(([a-z])+.)+[A-Z]([a-z])+$", "re:(?=(mtp.*)+)x", "re:x{99999999999}",
)  # fmt: skip
GLOBS = (
    "*" * 500 + "x",
    "*a" * 300,
    "[" * 1000,
    "[!-",
    "**",
    "?" * 5000,
    "[a-" + "z" * 5000,
    "mtp.*.*.*.*.*.*.*.*.*.*.*.*x",
)
ODD = (None, True, 7, -1.5, "", "mtp", [], {}, [[]], [{}], [None], [7], [["mtp.fc"]], {"mtp.fc": {}}, {"mtp.fc": None},
       [""], ["."], [".."], ["*"], ["\0"], ["\ud800"], ["\x1b[2J"], ["mtp.fc\n"], ["\u202emtp"], ["x" * 10_000_000],
       [1e308], ["mtp.fc"] * 1000)  # fmt: skip


def at(config: Config, path: str, value: Any) -> Config:
    """The config with a value at a path."""
    changed = copy.deepcopy(config)
    *steps, last = path.split("/")
    holder = changed
    for step in steps:
        holder = holder.setdefault(step, {})
    holder[last] = value
    return changed


def told(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def nested(depth: int, opened: str = "[", closed: str = "]", inner: str = "0") -> str:
    return opened * depth + inner + closed * depth


def texts(config: Config) -> Iterator[tuple[str, bytes]]:
    """What is hardly JSON."""
    good = told(config)
    for what, raw in {
        "empty": b"", "blanks": b"  \n", "half": good[: len(good) // 2], "twice": good + good, "NUL": good + b"\0",
        "a byte order mark": b"\xef\xbb\xbf" + good, "UTF-16": good.decode().encode("utf-16"),
        "latin": b'{"a": "\xe9"}',
        "list": b"[]", "null": b"null", "number": b"7", "text": b'"config"', "comments": b"{} // x",
        "single": b"{'a': 1}",
        "NaN": good.replace(b'"num_hidden_layers": 2', b'"num_hidden_layers": NaN'),
        "escape": b"{\"\\u0000\": \"\\ud800\"}",
        "10,000 digits": good.replace(b'"num_hidden_layers": 2', b'"num_hidden_layers": ' + b"9" * 10_000),
        "exponent": good.replace(b'"num_hidden_layers": 2', b'"num_hidden_layers": 1e999'),
        "64 bit": good.replace(b'"num_hidden_layers": 2', b'"num_hidden_layers": ' + str(1 << 70).encode()),
        "same key": good[:-1] + b', "quantization_config": {}}', "binary": bytes(range(256)) * 40,
        "blanks of 10 MB": good + b" " * 10_000_000,
    }.items():  # fmt: skip
        yield f"text: {what}", raw
    for depth in (900, 5000, 100_000):
        yield f"nested {depth}", good[:-1] + f', "x": {nested(depth)}'.encode() + b"}"
        objects = nested(depth, '{"a":', "}")
        yield f"objects {depth}", good[:-1] + f', "quantization_config": {objects}'.encode() + b"}"


def values(config: Config) -> Iterator[tuple[str, bytes]]:
    """JSON whose values are of no kind that anybody expects."""
    for key in ("quantization_config", "quantization_config/ignore", "quantization_config/quant_method",
                "quantization_config/quant_algo", "model_type", "architectures", "num_hidden_layers",
                "num_nextn_predict_layers", "quantization_config/config_groups", "text_config",
                "quantization_config/quantized_layers"):  # fmt: skip
        for number, odd in enumerate(ODD):
            yield f"{key} {number}", told(at(config, key, odd))
    for count in (-1, 0, 10**9, 10**30):
        yield f"num_hidden_layers {count}", told(at(config, "num_hidden_layers", count))
        yield f"num_nextn_predict_layers {count}", told(at(config, "num_nextn_predict_layers", count))


def lists(config: Config) -> Iterator[tuple[str, bytes]]:
    """Exclusion lists of every format that cannot be matched in any sane way, or not soon."""
    long = {
        "many layers": [f"model.layers.{n}.x" for n in range(MANY)],
        "one entry many times": ["mtp.fc"] * MANY,
        "many entries of no kind": [None, 7, "", [], {}] * (MANY // 5),
    }
    for method, key, shown in (("modelopt", "ignore", GLOBS), ("compressed-tensors", "ignore", REDOS),
                               ("quark", "exclude", REDOS), ("fp8", "modules_to_not_convert", GLOBS + REDOS),
                               ("awq", "modules_to_not_convert", GLOBS + REDOS)):  # fmt: skip
        base = at(config, "quantization_config/quant_method", method)
        for number, entry in enumerate(shown):
            yield f"{method} entry {number}", told(at(base, f"quantization_config/{key}", [entry, "mtp.fc"]))
        for what, entries in long.items():
            yield f"{method}, {what}", told(at(base, f"quantization_config/{key}", entries))
    gptq = at(config, "quantization_config/quant_method", "gptq")
    for number, entry in enumerate(REDOS):
        dynamic = {"-:" + entry[3:]: {}, "+:" + entry[3:]: {"bits": 8}}
        yield f"gptq rule {number}", told(at(gptq, "quantization_config/dynamic", dynamic))
    yield "gptq of many", told(at(gptq, "quantization_config/dynamic", {rf"-:x{n}\..*": {} for n in range(MANY // 10)}))


def indexes() -> Iterator[tuple[str, bytes]]:
    """Index files that lead astray."""
    for number, shard in enumerate(("/etc/passwd", "../../../etc/passwd", "/dev/zero", "a/../../b.safetensors", "..",
                                    ".", "", "\0", "x" * 5000, "model.safetensors\0", "pipe.safetensors",
                                    "loop.safetensors",
                                    "zero.safetensors", "sub/model.safetensors", "C:\\x.safetensors", "~/x.safetensors",
                                    "https://example.org/x.safetensors", 7, None, [], {})):  # fmt: skip
        yield f"index to {number}", told({"weight_map": {"mtp.fc.weight": shard}})
    for number, odd in enumerate(ODD):
        yield f"index of {number}", told({"weight_map": odd})
        yield f"index {number}", told(odd)
    yield (
        "index of many shards",
        told({"weight_map": {f"m.{n}.weight": f"s{n}.safetensors" for n in range(MANY // 10)}}),
    )


CONFIGS: tuple[Callable[[Config], Iterator[tuple[str, bytes]]], ...] = (texts, values, lists)
