"""Families as an engine builds them that takes another one's model classes: vLLM-Ascend's are vLLM's, release by
release (data/vllm_ascend.json)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mtpfix import packaged
from mtpfix.families.base import Family, View
from mtpfix.families.loader import Row, fault_rows, module_rows, read, view_of
from mtpfix.frozen import replace
from mtpfix.releases import key

PLUGIN, HOST = "vllm-ascend", "vllm"
_NEVER_SINCE, _NEVER_UNTIL = "9999", "0"


@lru_cache(maxsize=1)
def _facts() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(packaged.text("data/vllm_ascend.json"))
    return found


def with_plugin(family: Family) -> Family:
    """A family with the plug-in's views of it, where the plug-in names it; else as it is."""
    own = _views(family.name) if family.name in _facts()["families"] else ()
    return replace(family, views=(*family.views, *own)) if own else family


@lru_cache(maxsize=64)
def _views(name: str) -> tuple[View, ...]:
    return tuple(view_of(_moved(row)) for row in read(name).get("view", ()) if row["engine"] == HOST)


def _moved(row: Row) -> Row:
    """A view of the host as one of the plug-in."""
    whole = {**row, "rows": [*module_rows(row)], "fault": [*fault_rows(row)]}
    found: Row = _in_its_releases({name: part for name, part in whole.items() if name not in _SPELT_OUT})
    return {**found, "engine": PLUGIN}


_SPELT_OUT = frozenset({"layers", "blocks", "faults"})


def _in_its_releases(part: Any) -> Any:
    """A part of a view with the host's releases told in the plug-in's."""
    if isinstance(part, Mapping):
        moved = {name: _in_its_releases(value) for name, value in part.items()}
        return moved | {name: _BOUNDS[name](part[name]) for name in _BOUNDS.keys() & part.keys() if part[name]}
    return [_in_its_releases(item) for item in part] if isinstance(part, list) else part


def _since(release: str) -> str:
    """The plug-in's first release on a release of the host or a later one."""
    hosts: Mapping[str, str] = _facts()["releases"]
    return next((own for own, host in hosts.items() if key(host) >= key(release)), _NEVER_SINCE)


def _until(release: str) -> str:
    """The plug-in's last release on a release of the host or an earlier one."""
    hosts: Mapping[str, str] = _facts()["releases"]
    return next((own for own, host in reversed([*hosts.items()]) if key(host) <= key(release)), _NEVER_UNTIL)


_BOUNDS = {"since": _since, "until": _until}
