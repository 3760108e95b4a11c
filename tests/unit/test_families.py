"""Family files: the loader, the patterns, and hand cases of what engines ask."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest

from mtpfix.families import REGISTRY, identify
from mtpfix.families.base import Ask, ask, change_points, is_draft, view_for
from mtpfix.families.conditions import CONDITIONS, holds_all
from mtpfix.families.loader import block, load, read
from mtpfix.families.patterns import Key, PatternMap, expand, fill, key_of
from mtpfix.releases import modelled

NAMES = [entry.name for entry in REGISTRY]


def raw(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("mtpfix.families").joinpath(f"{name}.toml").read_text("utf-8"))


def asks(family: str, engine: str, part: str, release: str, module: str, method: str = "fp8") -> Ask | None:
    """What the family's first architecture, with four layers, asks for a module."""
    found = load(family)
    view = view_for(found, engine, part, release, found.architectures[:1])  # type: ignore[arg-type]
    assert view is not None
    return ask(view, key_of(module), 4, release, method)


def test_blocks_are_what_the_whole_file_says() -> None:
    """They are cut out of the text one by one, so that only those that a family uses are parsed."""
    whole = raw("blocks")
    assert {name: block(name) for name in whole} == whole
    with pytest.raises(KeyError):
        block("no such block")


@pytest.mark.parametrize("name", NAMES)
def test_every_view_and_fact_names_its_source(name: str) -> None:
    for view in load(name).views:
        spans = [view.span, *(fact.span for fact in view.specials), *(fault.span for fault in view.faults)]
        assert all(span.source for span in spans), view.model_class


class TestPatterns:
    @pytest.mark.parametrize(
        ("text", "readings"),
        [
            ("a.b", ("a.b",)),
            ("{q,k}_proj", ("q_proj", "k_proj")),
            ("{a,b}.{c,d}", ("a.c", "a.d", "b.c", "b.d")),
            ("a.{n}.b", ("a.{n}.b",)),
        ],
    )
    def test_expand(self, text: str, readings: tuple[str, ...]) -> None:
        assert expand(text) == readings

    def test_key(self) -> None:
        assert key_of("a.3.b.12") == Key("a.#.b.#", (3, 12))
        assert key_of("w1.x2") == Key("w1.x2", ())

    def test_fill(self) -> None:
        assert fill("m.{N+i}.{2N}.{N}.{i}", {"i": 1}, 61) == "m.62.122.61.1"

    @pytest.mark.parametrize(
        ("pattern", "name", "fits"),
        [
            ("layers.{n}.a", "layers.3.a", True),
            ("layers.{n}.a", "layers.4.a", False),
            ("layers.{N+i}.a", "layers.4.a", True),
            ("layers.{N+i}.a", "layers.3.a", False),
            ("layers.{i}.a", "layers.99.a", True),
            ("layers.61.a", "layers.61.a", True),
            ("layers.61.a", "layers.6.a", False),
            ("mtp.**", "mtp.layers.0.x", True),
            ("mtp.**", "mtp", False),
            ("mtp.**", "mtp_block.x", False),
            ("**", "anything.at.all", True),
        ],
    )
    def test_find(self, pattern: str, name: str, fits: bool) -> None:
        assert (PatternMap([(pattern, True)]).find(key_of(name), 4) is not None) is fits

    def test_the_first_fitting_row_wins(self) -> None:
        table = PatternMap([("a.{i}.b", 1), ("a.**", 2), ("a.0.b", 3)])
        assert [table.find(key_of(name), 9)[0] for name in ("a.0.b", "a.0.c")] == [1, 2]  # type: ignore[index]

    def test_rows_that_are_not_accepted_are_passed_over(self) -> None:
        table = PatternMap([("a.**", 1), ("a.**", 2)])
        assert table.find(key_of("a.b"), 1, lambda value: value > 1) == (2, {})


class TestFiles:
    @pytest.mark.parametrize("entry", REGISTRY, ids=lambda entry: entry.name)
    def test_the_registry_has_the_file_s_model_types(self, entry: Any) -> None:
        family = load(entry.name)
        assert (family.name, family.model_types) == (entry.name, entry.model_types)

    @pytest.mark.parametrize("name", NAMES)
    def test_every_fact_says_where_it_was_read(self, name: str) -> None:
        assert [fact for fact in _facts(raw(name)) if not fact.get("source")] == []

    @pytest.mark.parametrize("name", NAMES)
    def test_releases_in_a_file_are_modelled(self, name: str) -> None:
        for engine, fact in _dated(raw(name)):
            for key in ("since", "until"):
                assert fact.get(key, modelled(engine)[0]) in modelled(engine), fact

    @pytest.mark.parametrize("name", NAMES)
    def test_conditions_are_known(self, name: str) -> None:
        facts = [fact for view in raw(name)["view"] for kind in ("special", "fault") for fact in view.get(kind, ())]
        assert {key for fact in facts for key in fact.get("when", {})} <= set(CONDITIONS)

    @pytest.mark.parametrize("name", NAMES)
    def test_views_of_a_part_follow_each_other_without_a_gap(self, name: str) -> None:
        """A family that an engine knows in a release is known in every later one."""
        family = load(name)
        keys = {(view.engine, view.part, view.architectures) for view in family.views}
        for engine, part, architectures in keys:
            known = [view_for(family, engine, part, release, architectures) is not None for release in modelled(engine)]
            assert known == sorted(known), (engine, part)


def _facts(file: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for view in file["view"]:
        yield view
        yield from view.get("special", ())
        yield from view.get("fault", ())
        yield from (row for row in view.get("rows", ()) if isinstance(row, dict) and ("since" in row or "until" in row))


def _dated(file: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for view in file["view"]:
        for fact in _facts({"view": [view]}):
            yield view["engine"], fact


class TestIdentify:
    def test_nested_text_config(self) -> None:
        family, _ = identify({"model_type": "qwen3_5_moe", "text_config": {"model_type": "qwen3_5_moe_text"}})
        assert family is not None
        assert family.name == "qwen3_5"

    @pytest.mark.parametrize("kind", ["qwen2", "mistral", "qwen3", "", "no-such"])
    def test_unknown_types_are_left_out(self, kind: str) -> None:
        family, reason = identify({"model_type": kind})
        assert family is None
        assert repr(kind) in reason

    def test_no_model_type(self) -> None:
        assert identify({})[1] == "config.json has no model_type"


# Read from the engines' sources: family, engine and part; then release, stored module, layer kind, what is asked.
QUESTIONS = """
qwen3_next vllm draft
  0.33.0 mtp.fc linear mtp.fc
  0.33.0 mtp.layers.0.self_attn.k_proj linear mtp.layers.0.self_attn.qkv_proj
  0.33.0 mtp.layers.0.mlp.experts.3.up_proj moe mtp.layers.0.mlp.experts
  0.33.0 lm_head unasked lm_head
  0.16.0 mtp.layers.0.mlp.gate linear mtp.layers.0.mlp.gate
  0.17.0 mtp.layers.0.mlp.gate unasked mtp.layers.0.mlp.gate
qwen3_next vllm target
  0.12.0 model.layers.3.mlp.gate linear model.layers.3.mlp.gate
qwen3_next sglang draft
  0.5.23 mtp.fc unasked fc
  0.5.23 mtp.layers.0.self_attn.o_proj linear model.layers.0.self_attn.o_proj
qwen3_5 vllm target
  0.33.0 lm_head lm_head language_model.lm_head
  0.22.1 lm_head unasked language_model.lm_head
  0.17.0 model.language_model.layers.0.mlp.gate unasked language_model.model.layers.0.mlp.gate
  0.17.0 model.language_model.layers.0.mlp.up_proj linear language_model.model.layers.0.mlp.gate_up_proj
  0.33.0 model.visual.blocks.7.attn.qkv linear visual.blocks.7.attn.qkv
qwen3_5 sglang target
  0.5.9 model.language_model.layers.0.linear_attn.in_proj_z linear model.language_model.layers.0.linear_attn.in_proj_z
  0.5.23 model.visual.blocks.7.attn.qkv unasked
qwen3_5 sglang draft
  0.5.23 lm_head absent lm_head
qwen3_5 tensorrt-llm draft
  snapshot-3 mtp.layers.0.mlp.down_proj linear model.layers.4.mlp.mlp.down_proj
qwen3_moe vllm target
  0.33.0 model.layers.0.mlp.gate linear model.layers.0.mlp.gate
qwen3_moe sglang target
  0.5.23 model.layers.0.mlp.gate unasked model.layers.0.mlp.gate
llama vllm target
  0.33.0 model.embed_tokens embedding
gemma4_assistant vllm draft
  0.33.0 pre_projection linear draft_model.pre_projection
gemma4_assistant sglang draft
  0.5.18 pre_projection unasked pre_projection
  0.5.19 pre_projection linear pre_projection
"""


def _questions() -> list[object]:
    found: list[object] = []
    where: list[str] = []
    for line in QUESTIONS.strip().split("\n"):
        if not line.startswith(" "):
            where = line.split()
            continue
        release, module, layer, *runtime = line.split()
        name = f"{'-'.join(where)}-{release}-{module}"
        found.append(pytest.param(where, release, module, layer, "".join(runtime), id=name))
    return found


class TestHandCases:
    @pytest.mark.parametrize(("where", "release", "module", "layer", "runtime"), _questions())
    def test_question(self, where: list[str], release: str, module: str, layer: str, runtime: str) -> None:
        family, engine, part = where
        found = asks(family, engine, part, release, module)
        assert found is not None
        assert (found.layer, found.runtime) == (layer, runtime)

    def test_nvfp4_attention_of_qwen3_next_is_plain_in_sglang(self) -> None:
        module = "model.layers.1.self_attn.q_proj"
        layers = {
            (release, method): asks("qwen3_next", "sglang", "target", release, module, method).layer  # type: ignore[union-attr]
            for release in ("0.5.9", "0.5.10")
            for method in ("modelopt_fp4", "modelopt_fp8")
        }
        assert layers[("0.5.10", "modelopt_fp4")] == "unasked"
        assert {layer for pair, layer in layers.items() if pair != ("0.5.10", "modelopt_fp4")} == {"linear"}

    def test_a_module_without_a_row_is_unknown(self) -> None:
        assert asks("llama", "vllm", "target", "0.33.0", "model.layers.0.mlp.router") is None

    @pytest.mark.parametrize(("release", "known"), [("0.16.0", False), ("0.17.0", True)])
    def test_a_release_before_the_family(self, release: str, known: bool) -> None:
        view = view_for(load("qwen3_5"), "vllm", "draft", release, ("Qwen3_5MoeForConditionalGeneration",))
        assert (view is not None) is known

    @pytest.mark.parametrize(("release", "known"), [("0.26.0", False), ("0.27.0", True)])
    def test_text_only_checkpoints_came_later(self, release: str, known: bool) -> None:
        assert (view_for(load("qwen3_5"), "vllm", "target", release, ("Qwen3_5ForCausalLM",)) is not None) is known

    def test_the_drafter_s_wrong_packed_mapping_ends_with_0_25(self) -> None:
        views = [view_for(load("qwen3_next"), "vllm", "draft", release, ()) for release in ("0.24.0", "0.25.0")]
        assert [view.packed["gate_up_proj"] for view in views if view and view.packed] == [
            ("up_proj", "down_proj"), ("gate_proj", "up_proj"),
        ]  # fmt: skip

    def test_draft_modules(self) -> None:
        family = load("qwen3_5")
        assert is_draft(family, key_of("mtp.fc"), 4)
        assert not is_draft(family, key_of("model.language_model.layers.0.mlp.gate"), 4)
        assert is_draft(load("gemma4_assistant"), key_of("pre_projection"), 2)

    def test_change_points_name_modelled_releases(self) -> None:
        assert "0.20.0" in change_points(load("qwen3_5"), "vllm")
        assert set(change_points(load("qwen3_5"), "sglang")) <= set(modelled("sglang"))


class TestConditions:
    @pytest.mark.parametrize(
        ("when", "quant", "holds"),
        [
            ({"list_has_start": "mtp."}, {"exclude": ["mtp.fc"]}, True),
            ({"list_has_start": "mtp."}, {"exclude": ["model.mtp.fc"]}, False),
            ({"list_has_start": "mtp.|mlp.experts"}, {"exclude": ["mtp.fc", "mtp.0.mlp.experts.0.up_proj"]}, True),
            ({"list_has_start": "mtp.|mlp.experts"}, {"exclude": ["mtp.fc", "model.layers.0.mlp.experts"]}, False),
            ({"no_quantized_layers_under": "mtp."}, {"quantized_layers": {"mtp.layers.0.mlp.gate": {}}}, False),
            ({"no_quantized_layers_under": "mtp."}, {"quantization": {"quantized_layers": {"model.0": {}}}}, True),
            ({"dynamic_minus_has_part": "mtp"}, {"dynamic": {"-:.*mtp.*": {}}}, True),
            ({"dynamic_minus_has_part": "mtp"}, {"dynamic": {"+:.*mtp.*": {}}}, False),
            ({"list_has": "model.layers.{N}.*"}, {"ignore": ["model.layers.4.*"]}, True),
        ],
    )
    def test_hand_cases(self, when: dict[str, str], quant: dict[str, Any], holds: bool) -> None:
        assert holds_all(when, quant, {}, 4) is holds


# --- spelling of the files --------------------------------------------------------------------------------------------

_SPAN = {"since", "until", "source"}
_KEYS: dict[str, set[str]] = {  # what the loader reads; a table that is not here has keys of the model's own
    "": {"name", "title", "model_types", "architectures", "layers_key", "sources", "notes", "draft", "view"}
    | {"experts"},
    "experts": {"key", "router", "more", "source"},
    "draft": {"count", "modules", "full_precision", "wrapper", "without", "separate", "beside", "steps"},
    "draft.beside": {"engine", "file"} | _SPAN,
    "view": {"engine", "part", "class", "quant", "mapper", "packed", "layers", "blocks", "rows", "faults", "options"}
    | {"architectures", "special", "fault"}
    | _SPAN,
    "view.mapper": {"prefix", "substr", "suffix", "regex", "drop", "methods"},
    "view.rows": {"module", "asks", "layer", "methods", "projections", "why", "beside", "tied"} | _SPAN,
    "view.special": {"modules", "methods", "when", "decision", "why"} | _SPAN,
    "view.fault": {"modules", "methods", "decided", "stored", "schemes", "suffix", "when", "verdict", "error", "why"}
    | {"strays", "beyond"}
    | _SPAN,
}  # fmt: skip


def misspelt(table: object, at: str = "") -> list[str]:
    """Keys of a file that nothing reads."""
    if isinstance(table, list):
        return [name for row in table for name in misspelt(row, at)]
    if not isinstance(table, dict):
        return []
    wrong = [f"{at or 'the top'}: {key}" for key in table if at in _KEYS and key not in _KEYS[at]]
    return wrong + [name for key, inner in table.items() for name in misspelt(inner, f"{at}.{key}".lstrip("."))]


@pytest.mark.parametrize("name", [entry.name for entry in REGISTRY])
def test_a_file_has_no_key_that_nothing_reads(name: str) -> None:
    assert misspelt(read(name)) == []


def test_a_misspelt_key_is_found() -> None:
    assert misspelt({"layer_key": "n", "draft": {"counts": []}, "view": [{"packd": {}, "packed": {"any": []}}]}) == [
        "the top: layer_key",
        "draft: counts",
        "view: packd",
    ]
