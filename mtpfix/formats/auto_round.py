"""AutoRound (INC in vLLM): keys of `extra_config`, a module's name or a pattern, that ask for 16 bits.

vLLM takes a key for a name or the end of one, and searches for it where it has letters of patterns
(vllm-0.33.0 model_executor/layers/quantization/inc/config_parser.py:82-214); SGLang wants the whole name to match
(sglang-0.5.23 srt/layers/quantization/auto_round.py:190-280). A pattern that starts and ends openly suits both, and
no class mapper renames it. AutoRound writes `{"bits": 16, "data_type": "fp"}` for the draft tensors that it copies
(auto-round 0.16.1 utils/missing_tensors.py:662).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach, at, regex_matches, without_wrapper
from mtpfix.frozen import replace
from mtpfix.regexes import LETTERS

_FULL_PRECISION = 16
_PLAIN: Mapping[str, Any] = {"bits": _FULL_PRECISION, "data_type": "fp"}


class AutoRound:
    """`quant_method: auto-round`, or `inc`."""

    name = "auto-round"
    title = "AutoRound"
    marks = None

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") in ("auto-round", "auto_round", "inc")

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        """The keys that ask for full precision; others give a module bits of its own."""
        found = at(value, "extra_config", keyed=True)
        recipes = value.get("extra_config") if found.entries else {}
        kept = [
            (entry, place)
            for entry, place in zip(found.entries, found.places, strict=True)
            if isinstance(recipes, Mapping) and _is_plain(recipes[entry])
        ]
        return replace(
            found,
            entries=tuple(entry for entry, _ in kept),
            places=tuple(place for _, place in kept),
            value=_style(recipes[entry] for entry, _ in kept) if isinstance(recipes, Mapping) else _PLAIN,
        )

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        if reach == "leaf":
            return (node,)
        return tuple(dict.fromkeys(_pattern(name, reach) for name in (without_wrapper(node), node)))

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        return (node,) if reach == "leaf" else (_pattern(node, reach),)

    def covers(self, entry: str, name: str) -> bool:
        if LETTERS.isdisjoint(entry):
            return entry == name or name.endswith(f".{entry}")
        return regex_matches(entry, name)

    def anchors(self, entry: str) -> Anchors | None:
        return (("whole", entry), ("end", f".{entry}")) if LETTERS.isdisjoint(entry) else None

    def container(self) -> bool:
        return True


def _pattern(node: str, reach: Reach) -> str:
    below = r"(\..*)?" if reach == "experts" else r"\..*"
    return rf"(.*\.)?{re.escape(node)}{below}"


def _is_plain(recipe: Any) -> bool:
    bits = recipe.get("bits") if isinstance(recipe, (dict, Mapping)) else None  # a dict is told at once
    return isinstance(bits, int) and bits >= _FULL_PRECISION


def _style(recipes: Any) -> Mapping[str, Any]:
    """The recipe that the exporter itself wrote for full precision, else AutoRound's own."""
    return next((recipe for recipe in recipes), _PLAIN)


FORMATS: tuple[Format, ...] = (AutoRound(),)
