"""Reports in a real browser: they draw, answer, save, and run nothing that a plan brought."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from dovetail.cli import main
from tests.browser.browsing import OpenPage, open_page, run_browser
from tests.support.report_models import FORMULA, HOSTILE, build_plan, write_chain

SHAPE = "{}\N{MULTIPLICATION SIGN}4\N{MULTIPLICATION SIGN}8\N{MULTIPLICATION SIGN}8"
TABS = ["Overview", "Layers", "Tactics", "Placement", "Fusions", "Memory", "Roofline", "Difference"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_browser() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("browser")
    plans = [str(build_plan(place, "cpu.plan", "--providers", "cpu")), str(build_plan(place, "ort.plan"))]
    measure = ["--plugins", str(place / "layers.py"), "--profile", "--duration", "0.05"]
    assert main(["report", *plans, *measure, "-o", str(place / "two.html")]) == 0
    assert main(["report", plans[0], "-o", str(place / "one.html")]) == 0
    chain, plan = write_chain(place / "chain.onnx", 3000), place / "chain.plan"
    assert main(["build", str(chain), "--providers", "cpu", "-o", str(plan), "--quiet"]) == 0
    assert main(["report", str(plan), "-o", str(place / "chain.html")]) == 0
    return place


@pytest.fixture
def two(browser: Browser, folder: Path) -> Iterator[OpenPage]:
    with open_page(browser, folder / "two.html") as page:
        yield page
        assert page.problems == []
        assert len(page.requests) == 1, "nothing is read but the page itself"


def _saved(page: OpenPage, button: str) -> tuple[str, str]:
    with page.page.expect_download() as download:
        page.page.click(button)
    return download.value.suggested_filename, download.value.path().read_text(encoding="utf-8")


def _go_to(page: OpenPage, name: str) -> str:
    page.run(f"location.hash = '#layer={quote(name, safe='')}'")
    page.page.wait_for_function("state.selected !== null")
    return page.page.inner_text("#story")


def test_every_tab_shows_something(two: OpenPage) -> None:
    for name in TABS:
        two.page.click(f"#tab-{name}")
        assert two.page.get_attribute(f"#tab-{name}", "aria-selected") == "true"
        panel = two.page.locator("#panel")
        assert len(panel.inner_text()) > 40 or panel.locator("canvas").count(), name


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
def test_no_width_and_no_colours_break_it(browser: Browser, folder: Path, size: tuple[int, int], scheme: str) -> None:
    with open_page(browser, folder / "two.html", size=size, scheme=scheme) as page:  # type: ignore[arg-type]
        assert page.problems == []
        assert page.run("document.documentElement.scrollWidth") <= size[0]
        assert page.run("canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)")


def test_hostile_names_are_only_text(two: OpenPage) -> None:
    story = _go_to(two, HOSTILE)
    assert HOSTILE in story
    for name in TABS:
        two.page.click(f"#tab-{name}")
    two.page.fill("#query", "onerror")
    assert HOSTILE in two.page.inner_text("#hits")
    assert two.run("typeof window.attacked") == "undefined"
    assert two.run("document.querySelectorAll('img, svg, iframe, object').length") == 0


def test_a_script_that_got_in_would_not_run(two: OpenPage) -> None:
    two.run(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.attacked = 1'}))"
    )
    assert two.run("typeof window.attacked") == "undefined"
    assert [problem for problem in two.problems if "Content Security Policy" in problem]
    two.problems.clear()


def test_a_layer_tells_its_story(two: OpenPage) -> None:
    story = _go_to(two, "/stem/conv/Conv")
    for text in ("Conv", "time", "cpu", "operations", "float32 " + SHAPE.format(2), "/stem/norm/Norm", "ort.plan"):
        assert text in story
    assert "Fused by conv_batchnorm" in story
    tactics = _go_to(two, HOSTILE)
    assert "maximum" in tactics
    assert "slower by" in tactics or "not faster by" in tactics
    assert " rounds" in tactics


def test_search_finds_and_goes_there(two: OpenPage) -> None:
    two.page.keyboard.press("/")
    two.page.keyboard.type("reducesum")
    two.page.keyboard.press("Enter")
    assert two.run("state.selected.leaf.name") == "/gate/ReduceSum"
    assert "layer=%2Fgate%2FReduceSum" in two.run("location.hash")


def test_keys_go_from_layer_to_layer(two: OpenPage) -> None:
    _go_to(two, "/stem/act/Relu")
    two.page.focus("#canvas")
    two.page.keyboard.press("ArrowDown")
    assert two.run("state.selected.leaf.name") == HOSTILE
    two.page.keyboard.press("ArrowUp")
    assert two.run("state.selected.leaf.name") == "/stem/act/Relu"
    two.page.keyboard.press("Backspace")
    assert two.run("state.selected.name") == "act"
    two.page.keyboard.press("Enter")
    assert two.run("state.selected.leaf.name") == "/stem/act/Relu"
    two.page.keyboard.press("6")
    assert two.run("state.tab") == "Memory"


def test_groups_close_and_open(two: OpenPage) -> None:
    two.page.click("#close-all")
    closed = two.run("view.boxes.length")
    two.page.click("#open-all")
    assert closed < two.run("view.boxes.length") == two.run("nodes().length")


def test_branches_are_in_the_graph(two: OpenPage) -> None:
    _go_to(two, "/gate/Tanh")
    assert two.run("pathText(state.selected)") == ["gate", "If", "then of If", "Tanh"]
    assert two.run("view.edges.some((e) => e.isDashed && e.from.leaf?.op === 'If')")


def test_a_profile_has_its_own_shapes(two: OpenPage) -> None:
    two.page.select_option("#profile", "1")
    two.page.fill("#query", "/stem/conv/Conv")
    two.page.press("#query", "Enter")
    assert SHAPE.format(8) in two.page.inner_text("#story")


def test_two_engines_are_compared_by_their_layers(two: OpenPage) -> None:
    two.page.click("#tab-Difference")
    text = two.page.inner_text("#panel")
    assert "pieces of work in both" in text
    pair = two.run("program().byName.get('/stem/conv/Conv').pair.there.map((n) => n.op)")
    assert pair == ["FusedConv"], "what is fused there is found by the layers in it"
    two.page.select_option("#colour", "difference")
    assert "slower than in ort.plan" in two.page.inner_text("#legend")
    two.page.select_option("#engine", "1")
    assert "ort.plan" in two.page.inner_text("#title")


def test_tables_are_saved_without_formulas(two: OpenPage) -> None:
    two.page.click("#tab-Layers")
    name, text = _saved(two, "#panel button:has-text('Save as CSV')")
    rows = list(csv.reader(io.StringIO(text)))
    assert name == "cpu_layers.csv"
    assert len(rows) == 1 + two.run("nodes().length")
    assert f"'{FORMULA}" in {row[0] for row in rows}
    assert HOSTILE in {row[0] for row in rows}


def test_the_graph_is_saved_as_well_formed_svg(two: OpenPage) -> None:
    name, text = _saved(two, "#svg")
    root = ElementTree.fromstring(text)
    titles = {element.text for element in root.iter("{http://www.w3.org/2000/svg}title")}
    assert name == "cpu_graph.svg"
    assert HOSTILE in titles


def test_the_theme_can_be_turned(two: OpenPage) -> None:
    before = two.run("getComputedStyle(document.body).backgroundColor")
    two.page.click("#theme")
    assert two.run("getComputedStyle(document.body).backgroundColor") != before


def test_a_report_without_times_says_how_to_get_them(browser: Browser, folder: Path) -> None:
    with open_page(browser, folder / "one.html") as page:
        assert page.run("state.colour") == "provider"
        assert "--profile" in page.page.inner_text("#story")
        page.page.click("#tab-Roofline")
        assert "--profile" in page.page.inner_text("#panel")
        page.page.click("#tab-Difference")
        assert "dovetail report a.plan b.plan" in page.page.inner_text("#panel")
        assert page.problems == []


def test_three_thousand_layers_are_there_in_a_second(browser: Browser, folder: Path) -> None:
    times = []
    for _ in range(3):
        with open_page(browser, folder / "chain.html") as page:
            times.append(page.ready_ms)
            assert page.run("nodes().length") == 3000
            assert page.problems == []
    assert min(times) < 1000, times


def test_three_thousand_boxes_are_laid_out_quickly(browser: Browser, folder: Path) -> None:
    with open_page(browser, folder / "chain.html") as page:
        page.run("setAllOpen(true)")
        assert page.run("view.boxes.length") == 3000
        took = page.run("(() => { const t = performance.now(); rearrange(); draw(); return performance.now() - t; })()")
        assert took < 1500
