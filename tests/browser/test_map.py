"""The page of `--format html` in a real Chromium: clicks, switches, keys, hostile names, small and dark screens."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from checkpoints import build, deepseek_v3, glm4_moe, qwen3_next

from mtpfix.analysis import analyse
from mtpfix.explaining import explain
from mtpfix.model import Checkpoint, Report
from mtpfix.output.base import CheckResult, Page
from mtpfix.output.html import check_page
from mtpfix.rules import RULES

HOSTILE = (
    "<script>hit()</script>",
    "</script><img src=x onerror=hit()>",
    "\"onclick='hit()'",
    "\u202egpj.exe",
    "\x1b[31mred",
    "nul\x00nul",
    "מודל",
    "__proto__",
)
EXPERTS = "model.layers.3.mlp.experts.*.gate_proj"


@cache
def checkpoint() -> Checkpoint:
    """A draft that no list names: vLLM and TensorRT-LLM stumble over it, and the plan mends it."""
    return build(deepseek_v3(3, 4), "nvfp4", ignore=["lm_head"])


@cache
def report() -> Report:
    return analyse(checkpoint(), atlas=True)


def page_of(found: Report) -> str:
    return check_page(CheckResult((found,), {rule.code: rule for rule in RULES}), Page())


@cache
def page() -> str:
    return page_of(report())


@cache
def largest(kind: str) -> str:
    """Pages of models of full size."""
    made = {
        "61 layers of 256 experts": lambda: build(deepseek_v3(61, 256), "nvfp4", ignore=["lm_head"]),
        "48 layers of 512 experts": lambda: build(qwen3_next(48, 512), "nvfp4", ignore=["lm_head", "mtp.layers.0*"]),
        "200 layers, a list by layer": lambda: build(
            glm4_moe(200, 4), "nvfp4", ignore=["lm_head", *(f"model.layers.{at}.self_attn*" for at in range(200))],
            stored={f"model.layers.{at}.self_attn.{name}_proj": "bf16" for at in range(200) for name in "qkvo"},
        ),
    }  # fmt: skip
    return page_of(analyse(made[kind](), atlas=True))


LARGEST = ("61 layers of 256 experts", "48 layers of 512 experts", "200 layers, a list by layer")


def cell(name: str) -> str:
    return f'.cell[title^="{name}"]'


def hatched(tab: Any) -> set[str]:
    """Names of the cells that the map hatches."""
    titles = tab.run(
        "return [...document.querySelectorAll('.sheet .cell.fails, .sheet .cell.degrades')].map(cell => cell.title)"
    )
    return {title.partition("\n")[0] for title in titles}


def wrong(found: Report, engine: str, *, after: bool) -> set[str]:
    """What an engine's newest release does not load as stored, by the matrix, experts as the map writes them."""
    rows = found.after if after else found.engines
    own = [row for row in rows if row.engine == engine and row.latest]
    return {re.sub(r"\.experts\.\d+\.", ".experts.*.", name) for row in own for name in row.modules}


def test_it_opens_without_a_complaint_and_asks_for_nothing(tab: Any) -> None:
    tab.open(page())
    assert tab.run("return document.querySelectorAll('.cell').length") > 40
    assert tab.run("return performance.getEntriesByType('resource').length") == 0
    assert tab.complaints() == []


def test_a_click_tells_the_tensors_the_decision_and_the_entry_that_decided(tab: Any) -> None:
    tab.open(page()).click(cell(EXPERTS))
    told = tab.text(".detail")
    assert "model.layers.3.mlp.experts.*.gate_proj" in told
    assert "experts 0..3 ×4" in told
    assert re.search(r"weight\s+BF16\s+128 × 128", told)
    (row,) = (
        row
        for row in explain(checkpoint(), ["model.layers.3.mlp.experts.0.gate_proj"], engines=["vllm"]).rows
        if row.latest and row.part == "draft"
    )
    assert row.runtime_name in told
    assert row.rule in told
    added = [edit.value for edit in report().plan.edits if edit.file == "config.json"]
    assert any(f"{entry} in config.json /quantization_config/ignore/" in told for entry in added)
    assert tab.run("return document.querySelector('[aria-pressed=true]').title").startswith(EXPERTS)


def test_what_is_hatched_is_what_the_matrix_rests_on_in_every_engine_before_and_after(tab: Any) -> None:
    tab.open(page())
    assert wrong(report(), "vllm", after=False)
    assert not wrong(report(), "vllm", after=True)
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        tab.click(f'label:has(input[value="{engine}"])')
        for side in ("after", "before"):
            tab.click(f'label:has(input[value="{side}"])')
            assert hatched(tab) == wrong(report(), engine, after=side == "after")
    assert tab.complaints() == []


def test_the_releases_can_be_chosen(tab: Any) -> None:
    found = analyse(
        build(qwen3_next(2, 2), "nvfp4", ignore=["lm_head", "*gate", "*linear_attn*", "mtp.layers.0*"]), atlas=True
    )
    tab.open(page_of(found)).click('label:has(input[value="vllm"])')
    choices = tab.run("return [...document.querySelectorAll('select option')].map(option => option.textContent)")
    assert "0.33.0 (newest)" in choices[0]
    seen = {}
    for at, name in enumerate(choices):
        tab.run(
            "const select = document.querySelector('select'); select.selectedIndex = arguments[0];"
            "select.dispatchEvent(new Event('change'))",
            at,
        )
        seen[name] = hatched(tab)
    # vllm-0.25.0 v1/spec_decode: the drafter builds mtp.fc in full precision from here on.
    assert {name: "mtp.fc" in hit for name, hit in seen.items()} == {name: "0.25" not in name for name in choices}


def test_it_says_how_many_modules_disagree_and_leads_to_them(tab: Any) -> None:
    tab.open(page()).click('label:has(input[value="vllm"])')
    atlas = report().atlas
    assert atlas is not None
    (view,) = (view for view in atlas.views if view.engine == "vllm" and view.latest)
    pairs = zip(atlas.modules, view.before.rulings, strict=True)
    count = sum(max(1, len(module.experts)) for module, found in pairs if any(ruling.verdict for ruling in found))
    assert f"{count} modules disagree" in tab.text(".says")
    visited = []
    for _ in range(3):
        tab.click(".jump")
        visited.append(tab.run("return document.activeElement.title").partition("\n")[0])
    assert len(set(visited)) == 3
    assert set(visited) <= hatched(tab)


def test_a_state_of_the_page_can_be_linked_to(tab: Any) -> None:
    tab.open(page())
    assert tab.run("return location.hash") == ""
    tab.click('label:has(input[value="sglang"])')
    tab.click('label:has(input[value="after"])')
    tab.click(cell("model.layers.1.mlp.gate"))
    address = tab.run("return location.href")
    shown = tab.text(".detail"), tab.text(".says")
    tab.open(page())
    assert tab.text(".detail") != shown[0]
    tab.driver.get("about:blank")
    tab.driver.get(address)
    assert (tab.text(".detail"), tab.text(".says")) == shown
    assert tab.run("return document.querySelector('input[value=after]').checked")


@pytest.mark.parametrize("address", ["#0/vllm/9.9.9/after/none", "#0/nobody", "#%E0%A4%A", "#7/vllm", "#0/__proto__/x"])
def test_an_address_that_means_nothing_does_no_harm(tab: Any, address: str) -> None:
    tab.open(page())
    href = tab.run("return location.href")
    tab.driver.get("about:blank")
    tab.driver.get(href + address)
    assert tab.run("return document.querySelectorAll('.cell').length") > 40
    assert tab.complaints() == []


def test_keys_reach_and_choose_every_cell(tab: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    tab.open(page())
    tab.run("document.querySelector('.sheet').scrollIntoView(); document.querySelector('.fold input').focus()")
    for _ in range(4):
        tab.press(Keys.TAB)
        if tab.run("return document.activeElement.classList.contains('cell')"):
            break
    name = "return document.activeElement.title.split('\\n')[0]"
    assert tab.run(name) == "model.layers.3.self_attn.q_a_proj"
    tab.press(Keys.ARROW_UP)
    assert tab.run(name) == "lm_head"
    tab.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.HOME)
    assert tab.run(name) == "model.layers.3.self_attn.q_a_proj"
    tab.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert tab.run(name) == "model.layers.0.self_attn.q_b_proj"
    tab.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ENTER)
    assert tab.text(".detail h3") == "model.layers.0.self_attn.q_a_proj"
    tab.press(Keys.END, Keys.ARROW_UP, Keys.SPACE)
    assert tab.text(".detail h3").startswith("model.layers.3.")
    assert tab.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert tab.run("return document.querySelectorAll('.sheet .cell[tabindex=\"0\"]').length") == 1


def test_every_cell_has_a_name_for_those_who_do_not_see_it(tab: Any) -> None:
    tab.open(page())
    names = tab.run(
        "return [...document.querySelectorAll('.sheet .cell')].map(cell => cell.getAttribute('aria-label'))"
    )
    assert all(re.search(r"^\S+, stored \S+, (agrees|fails|loads wrong|unknown|not )", name) for name in names)
    assert len(set(names)) == len(names)
    assert tab.run("return [...document.querySelectorAll('button')].every(b => b.textContent || b.ariaLabel)")


def test_layers_that_are_alike_can_be_folded(tab: Any) -> None:
    tab.open(page()).click('label:has(input[value="after"])')
    tab.click(".fold input")
    assert tab.run("return [...document.querySelectorAll('.grid th.row')].map(th => th.textContent)") == [
        "3",
        "0",
        "1,2",
    ]
    tab.click(cell("model.layers.{1,2}.mlp.gate"))
    assert tab.text(".detail h3") == "model.layers.{1,2}.mlp.gate"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_only_text(tab: Any, name: str) -> None:
    module = f"model.layers.0.{name}"
    extra = {f"{module}.{name}.weight": ("BF16", (8, 8)), f"{name}.weight": ("BF16", (8, 8))}
    made = build(deepseek_v3(3, 4), "nvfp4", ignore=["lm_head", name, f"{module}*"], extra=extra)
    tab.open(page_of(analyse(made, scope="all", atlas=True)))
    tab.run("window.hits = 0; window.hit = () => { window.hits += 1 }")
    assert tab.run("for (const cell of document.querySelectorAll('.cell')) cell.click(); return window.hits") == 0
    assert (
        tab.run("return document.querySelectorAll('script:not([id]), img, iframe, [onclick], [onerror]').length") == 1
    )
    visible = tab.run("return document.querySelector('main').textContent")
    assert not re.search("[\x00\x1b\u202e]", visible)
    assert tab.complaints() == []


def test_nothing_but_the_pages_own_script_and_style_acts(tab: Any) -> None:
    slipped = '<script>document.title = "run"</script><b onclick="document.title = \'run\'" style="color: red">x</b>'
    tab.open(page().replace("<main>", f"<main>{slipped}", 1)).click("b")
    assert tab.run("return document.title") == "mtpfix: memory"
    assert tab.run("return getComputedStyle(document.querySelector('b')).color") != "rgb(255, 0, 0)"
    told = tab.complaints()
    assert len(told) >= 3
    assert all("Content Security Policy" in line for line in told)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(tab: Any, scheme: str) -> None:
    tab.open(page(), scheme=scheme).click(cell(EXPERTS))
    ground, worst = tab.run(_CONTRASTS)
    assert (sum(ground) < 128 * 3) == (scheme == "dark")
    assert worst[0] >= 4.5, worst


# WCAG 2.2, success criterion 1.4.3: the ratio of relative luminances of each text and what is behind it.
_CONTRASTS = """
const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
const linear = (v) => v / 255 <= .04045 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
const light = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const colour = numbers(getComputedStyle(node).backgroundColor);
    if (colour.length < 4 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
let worst = [99, ""];
for (const node of document.querySelectorAll("body *")) {
  if (![...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
  if (node.closest("script, noscript, .cell") || !node.checkVisibility()) continue;
  const [a, b] = [light(numbers(getComputedStyle(node).color)), light(behind(node))];
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < worst[0]) worst = [ratio, node.outerHTML.slice(0, 80)];
}
return [numbers(getComputedStyle(document.documentElement).backgroundColor).slice(0, 3), worst];
"""


@pytest.mark.parametrize("width", [320, 360, 768, 1920])
def test_the_page_never_scrolls_sideways(tab: Any, width: int) -> None:
    tab.open(page(), width=width, height=700)
    tab.run("document.querySelector('.jump').click()")
    assert tab.run("return document.documentElement.scrollWidth") <= width
    if width < 400:
        assert tab.run("const box = document.querySelector('.sheet'); return box.scrollWidth > box.clientWidth")


def test_without_scripts_all_but_the_map_is_there(tab: Any) -> None:
    tab.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(page())
        assert tab.driver.find_element("css selector", "noscript").size["height"] > 0
        assert tab.driver.find_elements("css selector", ".cell") == []
        assert "MTP001" in tab.text("main")
    finally:
        tab.command("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("kind", LARGEST)
def test_the_largest_models_open_in_a_second_and_weigh_little(tab: Any, kind: str) -> None:
    written = largest(kind)
    assert len(written.encode()) < 500_000
    times = []
    for _ in range(3):
        tab.open(written)
        times.append(tab.run("return performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"))
    assert min(times) < 1000
    # A switch repaints every cell; that has to feel immediate.
    switch = (
        "const from = performance.now(); document.querySelector('input[value=sglang]').click();"
        "return performance.now() - from"
    )
    assert min(tab.run(switch) for _ in range(3)) < 500
    assert tab.complaints() == []


def test_motion_is_kept_away_from_those_who_do_not_want_it(tab: Any) -> None:
    tab.open(page())
    tab.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    assert tab.run("return getComputedStyle(document.querySelector('.sheet')).scrollBehavior") == "auto"
