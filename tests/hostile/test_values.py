"""Every key of every config file at hand, with values that nobody expects there: a report, or an error that is meant.

In the short run those of the tiny checkpoint, every seventh; with MTPFIX_LONG=1 those of the reported checkpoints and
of configs found in the wild too, where they are at hand, each key that any of them has.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from mtpfix.analysis import analyse
from mtpfix.checkpoint.local import read_local
from mtpfix.errors import MtpfixError
from mtpfix.output import human, json_v1
from mtpfix.output.base import CheckResult, Page
from mtpfix.rules import BY_CODE

from .configs import at, nested
from .sandbox import SECONDS

SHARED = Path(os.environ.get("MTPFIX_SHARED") or Path(__file__).parents[3] / "shared")
CASES = sorted((SHARED / "corpus" / "cases").glob("*.json"))
LONG = bool(os.environ.get("MTPFIX_LONG"))
ODD = (None, True, 0, -1, 1.5, 2**70, float("inf"), "", "\0", "mtp", [], [None], [["mtp.fc"]], {}, {"a": {}},
       json.loads(nested(400)), ["x"] * 9_000)  # fmt: skip
STEP = int(os.environ.get("MTPFIX_STEP") or (1 if LONG else 7))


def paths(value: Any, place: str = "") -> Iterator[str]:
    """Where a file has keys, those in lists of objects left out: `quantization_config/ignore`."""
    if isinstance(value, Mapping):
        for key, held in value.items():
            if "/" not in key:
                yield f"{place}{key}"
                yield from paths(held, f"{place}{key}/")


def told(folder: Path) -> str:
    """What `check` makes of a folder, in both forms; the error where it is one that is meant."""
    try:
        report = analyse(read_local(folder), scope="all")
    except MtpfixError as error:
        return str(error)
    result = CheckResult((report,), BY_CODE)
    page = Page()
    return json.dumps(json_v1.report(report, BY_CODE)) + human.check_text(result, page)


def tried(folder: Path, known: set[str], offset: int = 0) -> int:
    """Put each odd value under each key of a folder's files that is not known yet; how many there were."""
    count = 0
    for file in sorted(folder.glob("*.json")):
        sound = file.read_bytes()
        value = json.loads(sound)
        fresh = [path for path in dict.fromkeys(paths(value)) if path not in known and "weight_map/" not in path]
        known.update(fresh)
        for number, (path, odd) in enumerate((path, odd) for path in fresh for odd in ODD):
            if number % STEP != offset % STEP:
                continue
            file.write_text(json.dumps(at(copy.deepcopy(value), path, odd)))
            before = process_time()
            try:
                assert told(folder)
            except Exception as error:
                raise AssertionError(f"{folder.name}, {file.name}: {path} = {str(odd)[:60]}") from error
            assert process_time() - before < SECONDS, (file.name, path, str(odd)[:60])
            count += 1
        file.write_bytes(sound)
    return count


def test_each_key_of_a_tiny_checkpoint(place: Path) -> None:
    assert tried(place, set()) > 50


@pytest.mark.skipif(not (LONG and CASES), reason="the corpus is not at hand, or this is the short run")
def test_each_key_of_configs_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SHARED / "corpus"))
    forge = __import__("forge").forge
    known: set[str] = set()
    count = 0
    for number, path in enumerate(CASES):
        folder = tmp_path / path.stem
        forge(json.loads(path.read_text("utf-8")), folder)
        count += tried(folder, known, offset=number)
        last = folder
    for path in sorted((SHARED / "wild").rglob("*config.json")):
        (last / "config.json").write_bytes(path.read_bytes())
        if "quant_method" in path.read_text() or "num_hidden_layers" in path.read_text():
            count += tried(last, known)
    print(f"{count:,} cases of {len(known)} keys")
    assert count > 1000 // STEP
