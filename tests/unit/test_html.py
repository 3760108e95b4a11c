"""The report as a web page: what stands on it, and that its map says what the analysis says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest
from checkpoints import build, deepseek_v3, glm4_moe, qwen3_5, qwen3_next

from mtpfix.analysis import analyse
from mtpfix.model import MapModule, Report, Ruling
from mtpfix.output import human, mapdata
from mtpfix.output.base import CheckResult, Page
from mtpfix.output.html import check_page
from mtpfix.output.mapdata import LAYER, map_data
from mtpfix.rules import RULES

RULE_TEXTS = {rule.code: rule for rule in RULES}
CASES = {
    "draft not listed": lambda: build(deepseek_v3(3, 4), "nvfp4", ignore=["lm_head"]),
    "a list by layer": lambda: build(
        glm4_moe(12, 2),
        "ct-nvfp4",
        ignore=["lm_head", *(f"model.layers.{at}.self_attn.q_proj" for at in range(12))],
        stored={f"model.layers.{at}.self_attn.q_proj": "bf16" for at in range(12)},
    ),
    "draft beside the layers": lambda: build(qwen3_next(4, 3), "nvfp4", ignore=["lm_head", "*gate", "mtp.layers.0*"]),
    "wrapped": lambda: build(qwen3_5(4, 2), "fp8-block", ignore=["lm_head"]),
    "experts stored unlike": lambda: build(
        glm4_moe(3, 8), "nvfp4", ignore=["lm_head"],
        stored={f"model.layers.1.mlp.experts.{at}.up_proj": "bf16" for at in (1, 2, 5)},
    ),
    "family unknown": lambda: build(qwen3_next(2, 2), "nvfp4", ignore=[], changes={"model_type": "nobody"}),
    "not quantized": lambda: build(qwen3_next(2, 2)),
}  # fmt: skip


@cache
def report_of(case: str) -> Report:
    return analyse(CASES[case](), atlas=True)


def page_of(*reports: Report) -> str:
    return check_page(CheckResult(reports, RULE_TEXTS, len(reports) > 1), Page())


class _Text(HTMLParser):
    """The text of a page, without its style, script and data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.texts.append(data)


def text_of(page: str) -> str:
    return " ".join(" ".join(_Text(page).texts).split())


def test_the_page_says_without_its_map_what_is_wrong_and_what_to_do() -> None:
    report = report_of("draft not listed")
    text = text_of(page_of(report))
    assert "fixable" in text
    assert "mtpfix apply memory" in text
    assert "model.layers.3.mlp.experts.{0..3}.{down,gate,up}_proj" in text
    assert '+ "model.layers.3.*"' in text.replace("+ ", "+ ").replace("+     ", "+ ")
    for finding in report.findings:
        assert finding.rule in text
        assert finding.hint in text
    assert "✗ fails → ✓ loads" in text


def test_the_engines_own_words_can_be_searched_for() -> None:
    report = report_of("a list by layer")
    errors = {row.error for row in report.engines if row.error and row.verdict == "fails"}
    assert errors
    text = text_of(page_of(report))
    assert all(" ".join(error.split()) in text for error in errors)


def test_a_clean_checkpoint_has_no_fix() -> None:
    text = text_of(page_of(report_of("not quantized")))
    assert "mtpfix apply" not in text
    assert "after the fix" not in text


def test_several_checkpoints_are_one_page() -> None:
    page = page_of(report_of("draft not listed"), report_of("wrapped"))
    assert page.count("<details") == 2
    assert page.count('class="map"') == 2
    assert len(_data(page)) == 2


def _data(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


# --- the data says what the analysis says ----------------------------------------------------------------------------


def cells(data: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str, list[Any]]]:
    """(layer, number, part, kind, members) of every cell."""
    for grid in data["grids"]:
        for prefix, part, layers in grid["sections"]:
            for number, row in layers:
                for kind, at in zip(grid["cols"], row, strict=True):
                    if at >= 0:
                        yield f"{prefix}.{number}", str(number), part, kind, data["classes"][at]
    for name, part, at in data["loose"]:
        yield "", "", part, name, data["classes"][at]


def rulings(data: Mapping[str, Any], vector: int, view: int, number: str) -> tuple[tuple[str, ...], ...]:
    """Written rulings as they are read: with the layer's number and the entry's index in their places."""
    found = []
    for at in data["sets"][data["vectors"][vector][view]]:
        part, runtime, decision, scheme, rule, place, entry, verdict, why, error = data["rulings"][at]
        runtime, rule, entry, why, error = (text.replace(LAYER, number) for text in (runtime, rule, entry, why, error))
        index = data["places"].get(place, {}).get(entry)
        where = place if index is None else f"{place}/{index}"
        found.append((part, runtime, decision, scheme, rule, where, entry, verdict, why, error))
    return tuple(found)


def told(ruling: Ruling) -> tuple[str, ...]:
    where = f"{ruling.file} {ruling.pointer}" if ruling.file else ""
    head = ruling.part, ruling.runtime, ruling.decision, ruling.scheme, ruling.rule, where, ruling.entry
    return (*head, ruling.verdict, ruling.why, ruling.error)


def place_of(module: MapModule) -> tuple[str, str, str]:
    return module.layer, module.part, module.kind


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_lost_on_the_way_to_the_page(case: str) -> None:
    atlas = report_of(case).atlas
    assert atlas is not None
    data = json.loads(json.dumps(map_data(atlas)))
    left = {(place_of(module), module.experts): at for at, module in enumerate(atlas.modules)}
    for layer, number, part, kind, members in cells(data):
        for experts, count, scheme, tensors, listed, before, after in members:
            own = [key for key in left if key[0] == (layer, part, kind) and max(1, len(key[1])) == count]
            own = [key for key in own if not experts or spelled(experts) == key[1]]
            assert len(own) == 1
            module = atlas.modules[left.pop(own[0])]
            at = atlas.modules.index(module)
            assert data["schemes"][scheme][0] == module.scheme
            assert [tuple(cell[:2]) for cell in data["tensors"][tensors]] == [cell[:2] for cell in module.tensors]
            assert bool(listed) == module.listed
            for place, view in enumerate(atlas.views):
                assert rulings(data, before, place, number) == tuple(map(told, view.before.rulings[at]))
                assert rulings(data, after, place, number) == tuple(map(told, view.after.rulings[at]))
    assert not left


def spelled(experts: str) -> tuple[int, ...]:
    """`0..2,5` as numbers."""
    runs = (run.partition("..") for run in experts.split(","))
    return tuple(at for low, _, high in runs for at in range(int(low), int(high or low) + 1))


@pytest.mark.parametrize("case", CASES)
def test_the_map_hatches_what_the_matrix_rests_on(case: str) -> None:
    """The modules that the map hatches are those that the matrix names."""
    report = report_of(case)
    assert report.atlas is not None
    for view in report.atlas.views:
        for row in view.before.rows:
            hit = {
                name
                for module, found in zip(report.atlas.modules, view.before.rulings, strict=True)
                if any(ruling.part == row.part and ruling.verdict in ("fails", "degrades") for ruling in found)
                for name in [re.sub(r"experts\.\d+", f"experts.{expert}", module.name) for expert in module.experts]
                or [module.name]
            }
            assert hit == set(row.modules)


@pytest.mark.parametrize("case", CASES)
def test_views_tell_every_release_once_and_neighbours_apart(case: str) -> None:
    report = report_of(case)
    assert report.atlas is not None
    seen = [(view.engine, release) for view in report.atlas.views for release in view.releases]
    assert sorted(seen) == sorted({(row.engine, release) for row in report.engines for release in row.releases})
    assert len(seen) == len(set(seen))


def test_layers_that_differ_only_in_their_number_are_one_class() -> None:
    atlas = report_of("a list by layer").atlas
    assert atlas is not None
    data = map_data(atlas)
    kinds = {kind: set() for _, _, _, kind, _ in cells(data)}
    for grid in data["grids"]:
        for _, part, layers in grid["sections"]:
            for _, row in layers if part == "target" else ():
                for kind, at in zip(grid["cols"], row, strict=True):
                    kinds[kind].add(at)
    assert len(kinds["self_attn.q_proj"]) == 1


def test_sections_of_like_layers_share_a_grid_and_the_draft_comes_first() -> None:
    atlas = report_of("draft beside the layers").atlas
    assert atlas is not None
    (grid,) = map_data(atlas)["grids"]
    assert [section[:2] for section in grid["sections"]] == [["mtp.layers", "draft"], ["model.layers", "target"]]
    assert [number for number, _ in grid["sections"][1][2]] == [0, 1, 2, 3]


def test_a_map_that_nobody_could_draw_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of("a list by layer")
    monkeypatch.setattr(mapdata, "MOST_CELLS", 100)
    page = page_of(report)
    assert 'class="map"' not in page
    assert "Left out" in text_of(page)
    assert _data(page) == [None]


def test_a_name_of_any_length_takes_little_room() -> None:
    name, entry = "x" * 100_000, "x" * 9_000
    made = build(glm4_moe(2, 2), "nvfp4", ignore=["lm_head", entry], extra={f"model.{name}.weight": ("BF16", (8, 8))})
    assert len(page_of(analyse(made, atlas=True))) < 150_000


def test_a_report_without_an_atlas_has_no_map() -> None:
    report = analyse(CASES["draft not listed"]())
    assert 'class="map"' not in page_of(report)


def test_the_head_says_what_the_fix_makes_of_it() -> None:
    report = report_of("draft not listed")
    page = check_page(CheckResult((report,), {}), Page())
    head = page[page.index("<header>") : page.index("</header>")]
    assert f"after it: {human.prospect(report)}" in head
