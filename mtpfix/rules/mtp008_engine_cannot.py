"""MTP008 engine-cannot: the metadata is right, and this release cannot honour it"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.rules.base import Context, Rule, by_part, evidence, finding, modules_of, plural, way_out

EXPLANATION = """\
The lists describe the weights truly, but a release of an engine does not ask them: it builds the module
quantized, or plain, whatever they say, or it fails on it for a reason of its own.
No entry helps. The matrix names the releases that load the part.
It is a warning as long as some engine's newest release loads the part, else an error.
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
                hint=way_out(context, part),
                severity="warning" if context.loads_somewhere(part) else "error",
            )


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
