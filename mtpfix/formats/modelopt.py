"""ModelOpt: globs over module paths in `ignore` (config.json) or `quantization.exclude_modules` (the sidecar).

nvidia-modelopt 0.47 torch/export/quant_utils.py:609-672 writes `prefix*`, `prefix.*` or an exact name;
convert_hf_config.py:261-263 copies the list to config.json as `ignore`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach, at

_WILD = frozenset("*?[")


class ModelOpt:
    """The `modelopt` methods, in both places."""

    name = "modelopt"
    title = "ModelOpt"
    marks = tuple(_WILD)

    def accepts(self, value: Mapping[str, Any]) -> bool:
        producer = value.get("producer")
        named = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
        return named or str(value.get("quant_method", "")).startswith("modelopt") or "quantization" in value

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        nested = value.get("quantization")
        if isinstance(nested, Mapping):
            return at(nested, "exclude_modules", "/quantization")
        return at(value, "ignore")

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        if reach == "leaf":
            return node, f"{node}*"  # with the star, SGLang does not take a leaf of latent attention for every layer's
        tight, loose = f"{node}.*", f"{node}*"
        if reach == "experts":
            return (loose, node)
        return (loose, tight) if _writes_loose(entries) else (tight, loose)

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        return self.spellings(node, reach, ())

    def covers(self, entry: str, name: str) -> bool:
        return entry == name or fnmatchcase(name, entry)

    def anchors(self, entry: str) -> Anchors | None:
        if not _WILD.intersection(entry):
            return (("whole", entry),)
        body = entry.strip("*")
        if _WILD.intersection(body) or len(entry) > len(body) + 1:
            return None
        return (("whole" if entry == body else "start" if entry.endswith("*") else "end", body),)

    def container(self) -> bool:
        return False


def _writes_loose(entries: tuple[str, ...]) -> bool:
    """Whether the exporter wrote `layer*` rather than `layer.*`."""
    stars = [entry for entry in entries if entry.endswith("*")]
    return 2 * sum(not entry.endswith(".*") for entry in stars) > len(stars)


FORMATS: tuple[Format, ...] = (ModelOpt(),)
