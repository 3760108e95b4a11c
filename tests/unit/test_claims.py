"""Which rule answers for a mismatch, what an entry is meant for, and how findings are put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from checkpoints import ABSENT, FORMATS, build, deepseek_v3, glm4_moe, glm5_next, qwen3_5, qwen3_next, right_list

from mtpfix import releases
from mtpfix.analysis import analyse
from mtpfix.formats import format_of
from mtpfix.model import Checkpoint, Finding
from mtpfix.rules import BY_CODE, RULES
from mtpfix.rules.base import plural, spans
from mtpfix.rules.entries import malformed, means
from mtpfix.rules.entries import meant as those_meant

Q35, GLM, NEXT, DS, GLM5 = qwen3_5(), glm4_moe(), qwen3_next(), deepseek_v3(), glm5_next()
Q, GATE = "mtp.layers.0.self_attn.q_proj", "mtp.layers.0.mlp.gate"
N45 = "model.layers.45.self_attn.q_proj"
WRAPPED = "model.language_model.layers.45.self_attn.q_proj"

# entry, module -> whether somebody who wrote it meant the module
MEANT = [
    (Q, Q, True),
    ("mtp", Q, True),
    ("mtp*", Q, True),
    ("mtp.*", Q, True),
    ("mtp.layers.0", Q, True),
    ("mtp.layers.0*", Q, True),
    ("*mtp*", Q, True),
    ("re:^mtp.*", Q, True),
    (r"re:^mtp\.layers\.0\..*", Q, True),
    (r"-:^mtp\..*", Q, True),
    (f"model.{Q}", Q, True),
    (f"model.language_model.{Q}", Q, True),
    (f"language_model.model.{Q}", Q, True),
    (r"re:^model\.mtp\..*", Q, True),
    ("q_proj", Q, True),
    ("*q_proj", Q, True),
    ("self_attn.q_proj", Q, True),
    ("mtp..layers.0.*", Q, True),
    (f".{Q}", Q, True),
    (f"{Q}.", Q, True),
    ("*", Q, True),
    ("mtp.layers.1.*", Q, False),
    ("mtp.layers.0.mlp*", Q, False),
    ("mtp.fc", Q, False),
    ("k_proj", Q, False),
    ("lm_head", Q, False),
    ("", Q, False),
    # the target's layer is not the draft's
    ("model.layers.0.mlp.gate", GATE, False),
    ("model.layers.0.mlp*", GATE, False),
    (r"-:^model\.layers\.0\.mlp\.gate$", GATE, False),
    (r"re:^model\.layers\.0\..*", GATE, False),
    ("mlp.gate", GATE, True),
    ("*.mlp.gate", GATE, True),
    ("re:.*mlp.gate$", GATE, True),
    # numbers are whole
    ("model.layers.45.*", N45, True),
    ("model.layers.45", N45, True),
    ("layers.45", N45, True),
    ("model.layers.4", N45, False),
    ("model.layers.4.*", N45, False),
    ("45", N45, True),
    ("4", N45, False),
    # wrappers
    ("model.layers.45.*", WRAPPED, True),
    ("model.language_model.layers.45.*", WRAPPED, True),
    ("language_model.model.layers.45.*", WRAPPED, True),
    (r"re:^model\.layers\.45\..*", WRAPPED, True),
    ("model.layers.44.*", WRAPPED, False),
]


@pytest.mark.parametrize(("entry", "module", "meant"), MEANT)
def test_what_an_entry_is_meant_for(entry: str, module: str, meant: bool) -> None:
    assert means(entry, module) is meant


ENTRIES = ("", ".", "..", "*", ". .", "model.", ".gate", "gate..", "gate*", "-gate", "model..gate", "é.gate")


@pytest.mark.parametrize("module", [*dict.fromkeys(module for _, module, _ in MEANT), "gate", "model", "", "."])
def test_a_whole_list_is_read_as_its_entries_are(module: str) -> None:
    entries = [*ENTRIES, *(entry for entry, _, _ in MEANT)]
    assert those_meant(entries, module) == [entry for entry in entries if means(entry, module)]


@pytest.mark.parametrize("entry", ["re:(", "re:[", "-:(", "[", "re:", "\\", "(a+)+$", "*" * 50, "\x00"])
def test_hostile_entries_are_read_all_the_same(entry: str) -> None:
    assert means(entry, "a" * 200) in (True, False)


# format, entry -> whether its form is at fault
FORMS = [
    ("nvfp4", "model.layers.0.mlp.gate.", True),
    ("nvfp4", "mtp..fc", True),
    ("nvfp4", ".mtp.fc", True),
    ("nvfp4", "mtp .fc", True),
    ("nvfp4", "", True),
    ("nvfp4", " ", True),
    ("nvfp4", "mtp.fc", False),
    ("nvfp4", "mtp.*", False),
    ("nvfp4", "*.fc", False),
    ("nvfp4", "mtp*", False),
    ("nvfp4", "re:^mtp\\..*", False),  # another dialect is no form at fault: MTP002
    ("fp8-block", "*mtp*", True),  # no valid regex in transformers (1.6)
    ("fp8-block", "mtp.fc", False),
    ("ct-w4a16", "re:^mtp\\..*", False),
    ("ct-w4a16", "mtp.fc", False),
    ("gptq", "-:^mtp", False),
]


@pytest.mark.parametrize(("fmt", "entry", "wrong"), FORMS)
def test_forms_of_entries(fmt: str, entry: str, wrong: bool) -> None:
    found = format_of(FORMATS[fmt].config([]))
    assert found is not None
    assert bool(malformed(found, entry)) is wrong


def rules(checkpoint: Checkpoint, part: str = "draft", **rest: Any) -> dict[str, Finding]:
    """The findings about a part; a rule's first one where it has several."""
    out: dict[str, Finding] = {}
    for finding in analyse(checkpoint, **rest).findings:
        if finding.part == part:
            out.setdefault(finding.rule, finding)
    return out


def both(made: Any, fmt: str, entries: Sequence[Any], **rest: Any) -> Checkpoint:
    return build(made, fmt, list(entries), sidecar=list(entries), **rest)


def test_each_module_and_engine_has_one_home() -> None:
    """A draft half of which is meant by an entry in another spelling is two findings, without overlap."""
    target = right_list(Q35, "nvfp4", draft=False)
    found = rules(both(Q35, "nvfp4", [*target, "model.mtp.layers.0.self_attn.*"]))
    assert set(found) == {"MTP001", "MTP002"}
    assert "mtp.fc" in found["MTP001"].modules
    assert Q in found["MTP002"].modules
    assert not set(found["MTP001"].modules) & set(found["MTP002"].modules)


def test_too_broad_against_excluded_but_quantized() -> None:
    """MTP004 where the entry serves something that is plain, MTP005 where everything that it names is quantized."""
    listed = right_list(Q35, "nvfp4")
    half = {name: "nvfp4" for name in Q35.draft if "self_attn" in name}
    assert "MTP004" in rules(both(Q35, "nvfp4", listed, stored=half))
    whole = {**dict.fromkeys(Q35.draft, "nvfp4"), "mtp.layers.0.mlp.gate": "bf16"}
    assert "MTP005" in rules(both(Q35, "nvfp4", listed, stored=whole))


def test_what_no_list_mends_says_whether_it_is_the_name_or_the_engine() -> None:
    """MTP015: the drafter's names are the target's (7.16). MTP008: it is built plain whatever the list says (7.6)."""
    collides = rules(both(NEXT, "modelopt-fp8", right_list(NEXT, "modelopt-fp8")))
    assert collides["MTP015"].engines == ("sglang",)
    assert "model.layers.0" in collides["MTP015"].message
    plain = [*right_list(GLM, "nvfp4", draft=False), *GLM.bare, "model.layers.2.head"]
    stubborn = rules(both(GLM, "nvfp4", plain, stored=dict.fromkeys(GLM.draft, "nvfp4")))
    assert set(stubborn) == {"MTP008"}
    assert stubborn["MTP008"].engines == ("sglang",)


def test_a_draft_that_was_right_by_accident_is_told_to_be_lost() -> None:
    """`-:.*0.*` serves SGLang's drafter, and takes the target's layer 0 along: with it goes what the drafter had."""
    checkpoint = build(NEXT, "gptq", [*right_list(NEXT, "gptq", draft=False), r"-:^mtp\..*", r"-:.*layers\.0\..*"])
    report = analyse(checkpoint)
    lost = {name for finding in report.findings if finding.rule == "MTP015" for name in finding.modules}
    assert report.status == "fixable"
    assert {Q, "mtp.layers.0.mlp.shared_expert.up_proj"} <= lost


SEVERITIES = [((), "warning", "clean"), (("sglang",), "error", "not-fixable"), (("vllm",), None, "clean")]


@pytest.mark.parametrize(("engines", "severity", "status"), SEVERITIES)
def test_what_one_engine_cannot_is_a_warning_while_another_loads(
    engines: tuple[str, ...], severity: str | None, status: str
) -> None:
    checkpoint = both(NEXT, "modelopt-fp8", right_list(NEXT, "modelopt-fp8"))
    found = rules(checkpoint, engines=engines).get("MTP015")
    assert (found.severity if found else None) == severity
    assert analyse(checkpoint, engines=engines).status == status


def test_the_plan_counts_before_severities_are_set() -> None:
    """vLLM loads the draft only once the plan is applied; SGLang's collision is a warning all the same."""
    checkpoint = both(NEXT, "modelopt-fp8", right_list(NEXT, "modelopt-fp8", draft=False))
    report = analyse(checkpoint)
    assert report.status == "fixable"
    assert {(item.rule, item.severity) for item in report.findings if item.part == "draft"} == {
        ("MTP001", "error"), ("MTP015", "warning"),
    }  # fmt: skip


def test_mended_and_not_mended_are_two_findings() -> None:
    """vLLM's drafter cannot be told one shard's storage by any list; the rest of the draft can be listed."""
    stored = {Q: "nvfp4"}
    entries = [*right_list(NEXT, "nvfp4", draft=False), "mtp.layers.0.self_attn.k_proj"]
    report = analyse(both(NEXT, "nvfp4", entries, stored=stored))
    assert report.status == "partly-fixable"
    assert {item.fix for item in report.findings if item.severity == "error"} == {"safe", "none"}


def test_no_list_at_all_counts_as_nothing_listed() -> None:
    assert "MTP001" in rules(build(Q35, "ct-w4a16", ABSENT))


def test_a_text_in_place_of_the_list_is_malformed() -> None:
    report = analyse(build(Q35, "nvfp4", "lm_head", sidecar="lm_head"))
    assert report.status in ("fixable", "partly-fixable", "not-fixable")
    assert "MTP016" in {finding.rule for finding in report.findings}


def test_spans_of_releases() -> None:
    class Judge:
        def __init__(self, name: str, found: Sequence[str]) -> None:
            self.engine = type("Engine", (), {"name": name})
            self.profile = type("Profile", (), {"releases": tuple(found)})

    every = releases.modelled("vllm")
    assert spans([Judge("vllm", every)]) == ("vllm",)  # type: ignore[list-item]
    assert spans([Judge("vllm", every[:2]), Judge("vllm", every[2:4])]) == (f"vllm<{every[4]}",)  # type: ignore[list-item]
    assert spans([Judge("vllm", every[5:])]) == (f"vllm>={every[5]}",)  # type: ignore[list-item]
    assert spans([Judge("vllm", [every[1]]), Judge("vllm", [every[3]])]) == (  # type: ignore[list-item]
        f"vllm>={every[1]},<{every[2]}",
        f"vllm>={every[3]},<{every[4]}",
    )


def test_words() -> None:
    assert (plural(1, "module"), plural(2, "module"), plural(0, "module")) == ("1 module", "2 modules", "0 modules")


def test_the_registry_is_whole() -> None:
    assert [rule.code for rule in RULES] == [f"MTP{number:03}" for number in range(1, 17)]
    assert len({rule.name for rule in RULES}) == len(BY_CODE) == 16
    for rule in RULES:
        assert rule.severity in ("error", "warning", "note")
        assert rule.fix in ("safe", "unsafe", "none")
        assert rule.explanation.endswith("\n")
        # such a line is printed as an item of a list
        assert not any(line.startswith(("-", " ")) for line in rule.explanation.splitlines())
        assert rule.summary


def test_a_scheme_that_only_old_releases_do_not_build_is_the_engines_fault() -> None:
    """SGLang takes MXFP8 for FP8 before 0.5.18: the declaration is right (MTP008, not MTP009)."""
    entries = [*right_list(Q35, "nvfp4", draft=False), "mtp.fc"]
    report = analyse(both(Q35, "mxfp8", entries, stored=dict.fromkeys(Q35.draft, "mxfp8")))
    assert report.status == "clean"
    assert {(item.rule, item.engines) for item in report.findings if "sglang" in item.engines[0]} == {
        ("MTP008", ("sglang<0.5.18",))
    }
