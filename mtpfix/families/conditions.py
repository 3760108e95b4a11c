"""Conditions of family rows: what a model class looks up in the raw config before it decides by itself.

A closed vocabulary, one function each; a row's conditions must all hold.

    list_has = "model.layers.{N}.*"       some exclusion list holds exactly this entry
    list_has_part = "mtp"                 some exclusion entry contains this text
    no_list_has_part = "mlp.experts"      none does
    list_has_start = "mtp.|mlp.experts"   some exclusion entry starts with the first text (and contains the second)
    quantized_layers_under = "mtp."       a key of quantized_layers starts with this text
    no_quantized_layers_under = "mtp."    none does
    dynamic_minus_has_part = "mtp"        a `-:` key of `dynamic` contains this text
    ignore_has = "model.layers.{N}.*"     the key `ignore` of the quantization config holds exactly this entry
    config_has = "disable_quant_module=mtp"   a config key's list or text holds this value
    config_above = "num_nextn_predict_layers=1"   a config key is a number above this one
    quant_has = "format=a|b"              a key of the quantization config equals one of these values
    no_quant_has = "moe_quant_algo=NVFP4" it equals none of them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mtpfix.families.base import config_value, text_configs, whole_number
from mtpfix.regexes import NEGATIVE

LIST_KEYS = ("ignore", "exclude_modules", "ignored_layers", "modules_to_not_convert", "exclude")


def holds_all(when: Mapping[str, str], quant: Mapping[str, Any], config: Mapping[str, Any], layers: int) -> bool:
    """Whether every condition of a row holds for a quantization config and the model's config."""
    return all(CONDITIONS[name](_filled(text, layers), quant, config) for name, text in when.items())


def _filled(text: str, layers: int) -> str:
    return text.replace("{N}", str(layers))


def _entries(quant: Mapping[str, Any]) -> Iterator[str]:
    nested = quant.get("quantization")
    for part in (quant, nested if isinstance(nested, Mapping) else {}):
        for key in LIST_KEYS:
            value = part.get(key)
            if isinstance(value, (list, tuple)):
                yield from (entry for entry in value if isinstance(entry, str))


def _keys_of(quant: Mapping[str, Any], name: str) -> Iterator[str]:
    nested = quant.get("quantization")
    for part in (quant, nested if isinstance(nested, Mapping) else {}):
        value = part.get(name)
        if isinstance(value, Mapping):
            yield from value


def _list_has(text: str, quant: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return any(entry == text for entry in _entries(quant))


def _list_has_part(text: str, quant: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return any(text in entry for entry in _entries(quant))


def _list_has_start(text: str, quant: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    start, _, part = text.partition("|")
    return any(entry.startswith(start) and part in entry for entry in _entries(quant))


def _layers_under(text: str, quant: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return any(key.startswith(text) for key in _keys_of(quant, "quantized_layers"))


def _dynamic_minus(text: str, quant: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return any(key.startswith(NEGATIVE) and text in key for key in _keys_of(quant, "dynamic"))


def _config_has(text: str, quant: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    key, _, wanted = text.partition("=")
    for part in text_configs(config):
        value = part.get(key)
        if value is not None:
            return wanted in value if isinstance(value, (list, tuple)) else str(value) == wanted
    return False


def _config_above(text: str, quant: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    key, _, bound = text.partition("=")
    value = whole_number(config_value(config, (key,)))
    return value is not None and value > int(bound)


def _ignore_has(text: str, quant: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    value = quant.get("ignore")
    return isinstance(value, (list, tuple)) and text in value


def _quant_has(text: str, quant: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    key, _, wanted = text.partition("=")
    return str(quant.get(key)) in wanted.split("|")


Condition = Callable[[str, Mapping[str, Any], Mapping[str, Any]], bool]


def _not(condition: Condition) -> Condition:
    return lambda text, quant, config: not condition(text, quant, config)


CONDITIONS: Mapping[str, Condition] = {
    "list_has": _list_has,
    "list_has_part": _list_has_part,
    "no_list_has_part": _not(_list_has_part),
    "list_has_start": _list_has_start,
    "quantized_layers_under": _layers_under,
    "no_quantized_layers_under": _not(_layers_under),
    "dynamic_minus_has_part": _dynamic_minus,
    "ignore_has": _ignore_has,
    "config_has": _config_has,
    "config_above": _config_above,
    "quant_has": _quant_has,
    "no_quant_has": _not(_quant_has),
}
