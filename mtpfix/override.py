"""Serve-time flags that have the effect of the plan, for people who cannot edit the checkpoint. Pure.

What the engines' newest modelled releases do with an override of the quantization config:

vLLM 0.33.0    `--hf-overrides` with a JSON object as value sets the whole value: a quantization config is no nested
               config class, so that nothing is merged (vllm/config/model.py:555-570, 616-690). It comes after
               hf_quant_config.json is taken in (transformers_utils/config.py:954-962). The draft's own config never
               sees it: "Dict overrides are target-specific key patches and are not applied to the draft"
               (config/speculative.py:1183-1215). It reaches a draft whose class takes the target's quantization
               object (`vllm_config.quant_config`), and no draft that reads its own (`get_draft_quant_config`).
               MIXED_PRECISION without `quantized_layers` is read from the file whatever the override says
               (model_executor/model_loader/weight_utils.py:263-279).
SGLang 0.5.23  `--json-model-override-args` sets the whole value likewise (srt/utils/hf_transformers/config.py:405-424),
               in the target's config and in the draft's, which come from one factory
               (srt/configs/model_config.py:945-985); a draft in a repository of its own and its target would both
               get it. `--speculative-draft-model-quantization unquant` counts where the draft's own config declares
               no method; one that does is found again (srt/configs/model_config.py:2106).

Tried with both engines on CPU: drafts that fail or degrade without the flags load with them in vLLM (Qwen3.5 NVFP4, FP8
and GPTQ; Qwen3-Next AWQ, FP8, block FP8, MXFP8, mixed; GLM-4 MoE and DeepSeek-V3 NVFP4, DeepSeek-V3 FP8) and in SGLang
(DeepSeek-V3 FP8; Qwen3.5 FP8 and block FP8). Where a draft reads its own config (Step-3.5, Nemotron-H) vLLM fails
with the flag as without it; and `unquant` changes nothing in SGLang where the checkpoint declares a method.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mtpfix import releases
from mtpfix.analysis import analyse, repaired
from mtpfix.asked import wanted_releases
from mtpfix.decisions import Judge, judges
from mtpfix.engines.registry import ENGINES
from mtpfix.engines.sources import CONFIG, SIDECAR, declared, fragment_for
from mtpfix.errors import UsageError
from mtpfix.frozen import dataclass, replace
from mtpfix.model import Checkpoint, EngineRow, JsonFile, Report
from mtpfix.releases import Span
from mtpfix.world import World, world_of

FLAGS: Mapping[str, str] = {"vllm": "--hf-overrides", "sglang": "--json-model-override-args"}
KNOWN: Mapping[str, Span] = {"vllm": Span("0.33.0"), "sglang": Span("0.5.23")}  # whose code above was read
DRAFT_FLAG = ("--speculative-draft-model-quantization", "unquant")
KEY = "quantization_config"
LONGEST = 131_071  # bytes of one argument that Linux hands to a program, its end mark not counted

_EDIT_A_COPY = "edit a copy of the JSON files: mtpfix apply"
_TARGET_ONLY = "vLLM applies such an override to the target only, and this draft reads its own quantization config"


@dataclass(frozen=True, slots=True)
class Override:
    """Flags for an engine, or why there are none.

    flags   the words of the command line; empty where nothing is needed or nothing works
    reason  why nothing is needed, or why no flag can do it
    works   whether the parts that are stored load with the flags
    """

    engine: str
    release: str
    works: bool
    flags: tuple[str, ...] = ()
    reason: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        """The flags as a shell takes them."""
        return shlex.join(self.flags)


def override(checkpoint: Checkpoint, engine: str) -> Override:
    """What to serve a checkpoint with in the newest of some releases: `vllm`, `sglang==0.5.23`.

    Raises UsageError for an engine or a release whose flags are not known, and for what is no range of releases.
    """
    ((name, some),) = wanted_releases([engine], "").items()
    if name not in FLAGS:
        raise UsageError(f"no flags of {name} are known", subject=engine, hint=f"known are {' and '.join(FLAGS)}")
    known = [release for release in releases.modelled(name) if releases.holds(release, KNOWN[name])]
    able = [release for release in known if release in some]
    if not able:
        raise UsageError(
            f"the flags of {engine} are not known",
            subject=engine,
            hint=f"known are those of {' and '.join(releases.ranges(name, known))}; for others {_EDIT_A_COPY} "
            f"--engine {shlex.quote(engine)}",
        )
    return _Case(checkpoint, name, able[-1]).answer()


@dataclass(frozen=True)
class _Case:
    checkpoint: Checkpoint
    engine: str
    release: str

    def answer(self) -> Override:
        world = world_of(self.checkpoint)
        if declared(self.engine, self.checkpoint.files) is None:
            return self._without_config(world)
        report = self._report(self.checkpoint)
        stuck = _stuck(report.engines)
        if not stuck:
            return self._nothing(report.engines)
        if not report.plan.edits:
            return self._cannot(f"no edit of the lists mends this: {_why(stuck)}", _first_hint(report))
        return self._reaching(world, report, {row.part for row in stuck})

    def _report(self, checkpoint: Checkpoint) -> Report:
        return analyse(checkpoint, engines=[f"{self.engine}=={self.release}"])

    def _reaching(self, world: World, report: Report, parts: set[str]) -> Override:
        """The override, where it reaches every part that needs it and those parts load with it."""
        if blocked := self._blocked(world, parts):
            return self._cannot(blocked, _EDIT_A_COPY)
        after = repaired(self.checkpoint, report.plan.after)
        fragment = fragment_for(self.engine, self.release, after.files)
        if fragment is None or fragment == fragment_for(self.engine, self.release, self.checkpoint.files):
            return self._cannot("the plan edits nothing that this engine reads", _EDIT_A_COPY)
        left = _stuck(self._report(_overridden(self.checkpoint, fragment.value)).engines)
        if left:
            return self._cannot(f"the override would not be enough: {_why(left)}")
        argument = json.dumps({KEY: fragment.value}, ensure_ascii=True, separators=(",", ":"))
        if len(argument) > LONGEST:
            return self._cannot(
                f"the argument has {len(argument):,} bytes, and Linux hands {LONGEST:,} to a program", _EDIT_A_COPY
            )
        return Override(self.engine, self.release, True, (FLAGS[self.engine], argument))

    def _blocked(self, world: World, parts: set[str]) -> str:
        """Why an override of config.json cannot reach a part that needs it; "" where it can."""
        chosen = declared(self.engine, self.checkpoint.files)
        read = fragment_for(self.engine, self.release, self.checkpoint.files)
        if read is not None and read.file == SIDECAR and chosen is not None and chosen.file != SIDECAR:
            return f"{self.engine} reads this config from {SIDECAR} whatever an override says"
        if world.family is not None and world.family.separate:
            if self.engine == "sglang":
                return "SGLang would put the same override on the target, whose quantization config it would replace"
            return _TARGET_ONLY
        if self.engine == "vllm" and "draft" in parts and self._draft_quant(world) != "shared":
            return _TARGET_ONLY
        return ""

    def _draft_quant(self, world: World) -> str:
        """`shared`, `own` or `none`: which quantization object the draft's class uses; "" where it is not known."""
        found = [judge for judge in self._own(world) if judge.part == "draft" and judge.view is not None]
        return found[0].view.quant if found and found[0].view else ""

    def _own(self, world: World) -> Iterator[Judge]:
        return (judge for judge in judges(world, [ENGINES[self.engine]]) if self.release in judge.profile.releases)

    def _without_config(self, world: World) -> Override:
        """A checkpoint that declares no quantization: only a draft of its own may need to be told apart."""
        if world.family is None or not world.family.separate or any(unit.stored.quantized for unit in world.units):
            return self._done("this checkpoint declares no quantization", works=True)
        if self.engine == "sglang":
            return Override(self.engine, self.release, True, DRAFT_FLAG)
        if self._draft_quant(world) == "shared":
            return self._cannot("this draft's class takes the target's quantization, and no flag changes that")
        return self._done(
            "vLLM builds a draft repository by its own config, which declares no quantization", works=True
        )

    def _nothing(self, rows: Sequence[EngineRow]) -> Override:
        if all(row.verdict == "loads" for row in rows):
            return self._done(f"{self.engine} {self.release} loads it as it is", works=True)
        return self._cannot(f"{self.engine} {self.release}: {_why(rows)}")

    def _done(self, reason: str, *, works: bool) -> Override:
        return Override(self.engine, self.release, works, (), reason)

    def _cannot(self, reason: str, hint: str = "") -> Override:
        return replace(self._done(reason, works=False), hint=hint)


def _overridden(checkpoint: Checkpoint, value: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint as the engine sees it under the flag: the top of config.json holds the value."""
    old = checkpoint.files[CONFIG]
    files = {**checkpoint.files, CONFIG: JsonFile(CONFIG, old.raw, {**old.value, KEY: value})}
    return replace(checkpoint, files=files)


def _stuck(rows: Sequence[EngineRow]) -> list[EngineRow]:
    return [row for row in rows if row.verdict in ("fails", "degrades")]


def _why(rows: Sequence[EngineRow]) -> str:
    return "; ".join(f"{row.part} {row.verdict}: {row.reason}" for row in rows if row.verdict != "loads")


def _first_hint(report: Report) -> str:
    return next((finding.hint for finding in report.findings if finding.hint and finding.severity == "error"), "")
