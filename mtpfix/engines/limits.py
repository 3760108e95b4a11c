"""How long the lists of a quantization config may be. A config is hostile input: what no model needs is refused.

The longest exclusion list known of a released model has 489 entries (DeepSeek-R1 NVFP4), none has more than a few
dozen patterns. A list may name what the checkpoint holds one by one, so that a large checkpoint may have longer ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

from mtpfix.engines.sources import DESCRIPTION, Fragment, config_fragments, description_fragment, sidecar_fragment
from mtpfix.errors import UnreadableError
from mtpfix.model import Checkpoint, JsonFile
from mtpfix.names import brief

MOST_ROWS = 400_000  # of a description: one for each tensor; a trillion parameters make 280,000 tensors
MOST_ENTRIES = 150_000  # in whatever checkpoint; a trillion parameters make 150,000 modules
FEW_ENTRIES = 20_000  # in a small checkpoint too
MOST_PATTERNS = 1_000  # entries that only trying them out can match
MOST_GROUPS = 250
MOST_TARGETS = 1_000  # of all config groups together

_GROUPS, _TARGETS = "config_groups", "targets"
_SPECIAL = re.compile(r"[*+?{\[]")


def check_lists(checkpoint: Checkpoint) -> None:
    """Raise UnreadableError for a quantization config with a list that is longer than its model can need."""
    index = checkpoint.index
    modules = len(checkpoint.modules) + (len(index.ghosts) if index else 0)
    most = min(MOST_ENTRIES, max(FEW_ENTRIES, 2 * modules))
    for fragment in _fragments(checkpoint.files):
        if fragment.file == DESCRIPTION:
            _check(fragment.file, "the file", fragment.value, MOST_ROWS, "entries")
        else:
            _check_config(fragment, most)


def _fragments(files: Mapping[str, JsonFile]) -> Iterator[Fragment]:
    held = (*config_fragments(files), sidecar_fragment(files), description_fragment(files))
    return (fragment for fragment in held if fragment is not None)


def _check_config(fragment: Fragment, most: int) -> None:
    nested = fragment.value.get("quantization")
    for part in (fragment.value, nested if isinstance(nested, Mapping) else {}):
        for key, value in part.items():
            if key == _GROUPS and isinstance(value, Mapping):
                _check(fragment.file, repr(key), value, MOST_GROUPS, "groups")
                _check(fragment.file, repr(key), tuple(_targets(value)), MOST_TARGETS, "targets")
            elif isinstance(value, (list, dict)):
                _check(fragment.file, repr(brief(key)), value, most, "entries")
                _check(fragment.file, repr(brief(key)), tuple(_patterns(value)), MOST_PATTERNS, "patterns")


def _targets(groups: Mapping[str, Any]) -> Iterator[object]:
    for group in groups.values():
        held = group.get(_TARGETS) if isinstance(group, Mapping) else None
        yield from held if isinstance(held, (list, dict)) else ()


def _patterns(entries: Iterable[object]) -> Iterator[str]:
    """The entries that no table finds: whose wildcards stand elsewhere than at one of the two ends."""
    for entry in entries:
        if isinstance(entry, str):
            both = len(entry) > 1 and entry[0] == entry[-1] == "*"
            if both or _SPECIAL.search(entry, 1, len(entry) - 1):
                yield entry


def _check(file: str, where: str, held: Sized, most: int, what: str) -> None:
    if len(held) > most:
        raise UnreadableError(
            f"{file}: {where} holds {len(held):,} {what}",
            subject=file,
            hint=f"no model needs as many; of this one mtpfix reads up to {most:,} {what}: look at what wrote the file",
        )
