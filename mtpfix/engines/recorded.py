"""How many decisions that an engine's own code made stand behind its model: `data/replayed.json`.

Made from the files of recorded decisions by

    mtpfix engines --replay FILE.jsonl... --format json | python -c 'import json, sys; json.dump(
        json.load(sys.stdin)["checked"], sys.stdout, indent=2, sort_keys=True)' > mtpfix/data/replayed.json

after a replay without a disagreement.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from mtpfix import packaged

Counts = Mapping[str, Mapping[str, int]]


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Counts]:
    table: Mapping[str, Counts] = json.loads(packaged.text("data/replayed.json"))
    return table


def recorded(engine: str) -> Counts:
    """Method -> release -> number of recorded decisions of an engine."""
    return _table().get(engine, {})
