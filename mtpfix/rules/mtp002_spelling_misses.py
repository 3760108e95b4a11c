"""MTP002 spelling-misses: an entry exists, but the engine asks for another name"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.rules.base import Context, Rule, by_part, evidence, finding, list_locations, modules_of, plural, stored_as

EXPLANATION = """\
Somebody listed the module, but in a spelling that the engine does not look up: with or without a wrapper
prefix (`model.language_model.`), under another layer name after renumbering (`model.decoder`), in another
dialect (a glob where names are compared whole, `re:` in a list of globs), as a parent where leaves are asked
for, or as leaves where the fused name is.
Why: an engine renames a module before it looks it up, and each format compares names in its own way.
In engines: the effect is that of no entry at all (see MTP001). One engine may be content with the spelling,
and another not.
Fix: add the names that the engines ask for; the entry that is there stays. `mtpfix apply` does that.
By hand: `mtpfix explain CHECKPOINT MODULE` prints the name that each engine asks for: write that name beside
the old one.
Seen in: GLM-5.2 MXFP4 by Quark, whose experts are listed one by one while vLLM asks for the fused parent
(vllm-project/vllm#46757); GLM-5.2 FP8 in SGLang, whose draft is renamed to `model.decoder`
(sgl-project/sglang#34906).
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part, over all modules that the plan covers."""
    for part, claims in by_part(context.claims.get("MTP002", ())).items():
        _, count = modules_of(claims)
        yield finding(
            "MTP002",
            claims,
            f"{plural(count, 'module')} of the {part} stored as {stored_as(claims)}: an entry is meant for "
            f"{'it' if count == 1 else 'them'}, but not in a spelling that is asked for. {evidence(claims[0])}: "
            f"{claims[0].mismatch.why}.",
            hint="add the spellings of the plan: mtpfix apply",
            fix="safe",
            locations=list_locations(context),
        )


RULE = Rule(
    "MTP002",
    "spelling-misses",
    "B",
    "error",
    "safe",
    "an entry exists, but the engine asks for another name",
    EXPLANATION,
    check,
)
