"""MTP008 engine-cannot: the metadata is right, and this release cannot honour it"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.rules.base import Claim, Context, Rule, by_part, evidence, finding, modules_of, plural, way_out

EXPLANATION = """\
The lists describe the weights truly, but a release of an engine does not ask them: it builds the module
quantized, or plain, whatever they say, or it fails on it for a reason of its own.
Why: the model class decides by itself, or has a fault that a later release mends.
In engines: the matrix names the releases that load the part, and the reason for those that do not.
Fix: no entry helps. Use a release that loads the part. It is a warning as long as some engine's newest
release does, else an error.
By hand: nothing in the checkpoint is to be changed.
Seen in: stepfun-ai/Step-3.7-Flash-NVFP4, whose right list vLLM did not ask for the head
(vllm-project/vllm#48883); nvidia/DeepSeek-R1-FP4 in old releases (vllm-project/vllm#25987).
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part and engine."""
    for part, claims in by_part(context.claims.get("MTP008", ())).items():
        for engine in dict.fromkeys(claim.mismatch.judge.engine.name for claim in claims):
            mine = [claim for claim in claims if claim.mismatch.judge.engine.name == engine]
            newest = max(mine, key=lambda claim: claim.mismatch.judge.profile.latest)
            _, count = modules_of(mine)
            yield finding(
                "MTP008",
                mine,
                f"{engine} cannot load {plural(count, 'module')} of the {part} as stored, whatever the lists say. "
                f"{evidence(newest)}: {newest.mismatch.why}.",
                hint=_copy(mine) or way_out(context, part),
                severity="warning" if context.loads_somewhere(part) else "error",
            )


def _copy(claims: list[Claim]) -> str:
    """What to do where the engine does not read the file that gives the modules their schemes; or ""."""
    beside = next((claim.beside for claim in claims if claim.beside), "")
    return f"say in config.json too which scheme each module has, as {beside} does" if beside else ""


RULE = Rule(
    "MTP008",
    "engine-cannot",
    "H",
    "warning",
    "none",
    "the metadata is right, and this release cannot honour it",
    EXPLANATION,
    check,
)
