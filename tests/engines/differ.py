"""Drawn checkpoints, loaded by the real engines and judged by mtpfix: every verdict that is not the same is printed.

    MTPFIX_ENGINES=... MTPFIX_VLLM_PYTHON=... MTPFIX_SGLANG_PYTHON=... \
    python tests/engines/differ.py FOLDER [--seed 1] [--count 30] [--parts target,draft] [--family NAME] [--format NAME]

The variables are those of record.py. A checkpoint has the modules, norms and config of a recorded one (`asks/`), in a
format, with storage and lists that are drawn (tests/drawn.py); what mtpfix repairs is loaded once more, repaired. It is
kept in FOLDER, so that `record.py FOLDER/0007 --name NAME` makes a record of a difference that is mtpfix's fault. Some
seconds each. A load that a machine without a GPU cannot judge is left out (NO_VERDICT); other artefacts are in
`ARTEFACTS` of test_verdicts.py.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from checkpoints import ABSENT, Model, header, parts
from drawn import DUMPS, FORMATS, Case, entries, storages
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from record import LOGS, run_sglang, run_vllm
from recorded import model_of
from records import ASKS, Record, load_record

import mtpfix
from mtpfix.model import EngineRow

RUN = {"vllm": run_vllm, "sglang": run_sglang}
NEWEST = {"vllm": "0.33.0", "sglang": "0.5.23"}
NO_VERDICT = re.compile(
    r"CUDA|No module named '(flashinfer|cutlass)'|awq_dequantize|AWQ dequantize|does not recognize this architecture"
    r"|Failed to load the processor|failed to be inspected"
)
UNFIT = ("ds61-",)  # sixty-one experts a layer, of which the config counts four
UNTOLD = ("unsupported", "unknown", "")
Verdicts = Mapping[tuple[str, str], str]


@cache
def base(name: str) -> tuple[str, Model, dict[str, tuple[str, tuple[int, ...]]]]:
    """The family, the model and the tensors that are no matrices of a record."""
    record = load_record(ASKS / f"{name}.json")
    family, made = model_of(record, sys.maxsize)
    return family.name, made, _other_tensors(record, made)


def _other_tensors(record: Record, made: Model) -> dict[str, tuple[str, tuple[int, ...]]]:
    found = {name: spec for shard in record.shards.values() for name, spec in shard.items()}
    return {
        name: spec
        for name, spec in found.items()
        if name.rpartition(".")[0] not in made.shapes or name.endswith((".bias", "_bias"))
    }


def by_family() -> dict[str, list[str]]:
    """The records with a draft, by the names of their families."""
    found: dict[str, list[str]] = {}
    for path in sorted(ASKS.glob("*.json")):
        if path.stem.startswith(UNFIT):
            continue
        if any(run.part == "draft" for run in load_record(path).runs):
            found.setdefault(base(path.stem)[0], []).append(path.stem)
    return found


@st.composite
def cases(draw: Any, families: Mapping[str, list[str]], formats: list[str]) -> Case:
    """A record's modules with a format, storage and lists; its name stands in the family's place."""
    name = draw(st.sampled_from(families[draw(st.sampled_from(sorted(families)))]))
    _, made, _ = base(name)
    fmt = draw(st.sampled_from(formats))
    stored = draw(storages(made, FORMATS[fmt].scheme))
    ignore = draw(entries(made, fmt, stored))
    sidecar = draw(st.sampled_from([ignore, ABSENT])) if FORMATS[fmt].sidecar is not None else None
    return Case(name, fmt, made, stored, ignore, sidecar, 0)


def drawn(first: int, count: int, families: Mapping[str, list[str]], formats: list[str]) -> Iterator[Case]:
    """Cases without anything in their lists that is no text."""
    made = 0
    for number in range(100 * count):
        case = _last(first * 100_003 + number, cases(families, formats))
        if case.hostile:
            continue
        made += 1
        yield case
        if made == count:
            return


def _last(number: int, strategy: Any) -> Case:
    """A case from a seed of its own: hypothesis goes on by varying what it has drawn."""
    found: list[Case] = []

    @seed(number)
    @settings(
        max_examples=4, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @given(strategy)
    def draw(case: Case) -> None:
        found.append(case)

    draw()
    return found[-1]


def write(case: Case, folder: Path) -> Path:
    """The checkpoint in a folder; its weights are holes."""
    _, _, others = base(case.family)
    files, shards = parts(
        case.made, case.fmt, case.ignore, sidecar=case.sidecar, stored=case.stored, dump=DUMPS[case.style]
    )
    folder.mkdir(parents=True)
    for name, value in files.items():
        assert isinstance(value, bytes)
        (folder / name).write_bytes(value)
    modules = case.made.shapes
    for name, tensors in shards.items():
        own = {
            tensor: spec
            for tensor, spec in tensors.items()
            if tensor.rpartition(".")[0] in modules or tensor in modules
        }
        _, raw, size = header(name, {**others, **own})
        with (folder / name).open("wb") as file:
            file.write(len(raw).to_bytes(8, "little") + raw)
            file.truncate(size)
    return folder


def repaired(folder: Path, plan: mtpfix.Plan, into: Path) -> Path:
    """The checkpoint with the plan applied; what the plan leaves alone are links."""
    into.mkdir()
    for path in folder.iterdir():
        (into / path.name).symlink_to(path.resolve()) if path.suffix == ".safetensors" else (
            into / path.name
        ).write_bytes(path.read_bytes())
    for name, raw in plan.after.items():
        (into / name).unlink()
        (into / name).write_bytes(raw)
    return into


def said(rows: tuple[EngineRow, ...]) -> Verdicts:
    """What mtpfix says of the newest releases, by engine and part."""
    return {(row.engine, row.part): row.verdict for row in rows if NEWEST.get(row.engine) in row.releases}


def compare(folder: Path, ours: Verdicts, parts_asked: list[str], words: str) -> int:
    """Loads a checkpoint and prints what differs; how many loads were judged."""
    judged = 0
    for engine, run in RUN.items():
        asked = [part for part in parts_asked if ours.get((engine, part), "") not in UNTOLD]
        for found in run(folder, asked) if asked else ():
            if not found["verdict"] or NO_VERDICT.search(found["error"]):
                continue
            judged += 1
            if found["verdict"] != ours[engine, found["part"]]:
                more = found["error"][:200] or (found.get("casts") or found["never_written"])[:4]
                print(f"{folder.name} {words} {engine} {found['part']}: mtpfix {ours[engine, found['part']]}, "
                      f"{engine} {found['verdict']} {more}", flush=True)  # fmt: skip
    return judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--parts", default="target,draft")
    parser.add_argument("--family", default="")
    parser.add_argument("--format", default="", choices=["", *FORMATS])
    options = parser.parse_args()
    LOGS.mkdir(exist_ok=True)
    families = {name: found for name, found in by_family().items() if options.family in ("", name)}
    formats = [options.format] if options.format else list(FORMATS)
    judged = 0
    for number, case in enumerate(drawn(options.seed, options.count, families, formats)):
        folder = write(case, options.folder / f"{number:04}")
        report = mtpfix.check(str(folder), scope="all")
        words, asked = f"{case.family} {case.fmt}", options.parts.split(",")
        judged += compare(folder, said(report.engines), asked, words)
        if report.plan.edits:
            judged += compare(
                repaired(folder, report.plan, options.folder / f"{number:04}r"), said(report.after), asked, words
            )
    print(f"{options.count} checkpoints, {judged} loads judged")


if __name__ == "__main__":
    main()
