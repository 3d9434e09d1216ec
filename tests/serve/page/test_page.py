"""The page in a real browser, over a real server: it shows models, tries them, and runs nothing that a name brought."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from dovetail_serve.options import ServerOptions
from dovetail_serve.page import make_page
from dovetail_serve.server import Server
from tests.serve.repositories import write_models

CHROMIUM = os.environ.get("CHROMIUM") or "/usr/bin/chromium"
FREE = ServerOptions(http_port=0, grpc_port=None, poll_s=0)
KEY = "0123456789abcdef"
SHAPE = "? * 3 * 8 * 8".replace("*", "\N{MULTIPLICATION SIGN}")
HOSTILE = "<img src=x onerror=alert(1)>"

needs_browser = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="there is no chromium here")


def test_it_reads_nothing_from_elsewhere_and_has_no_inline_code() -> None:
    page = make_page()
    assert "://" not in page.text
    assert "@@" not in page.text
    assert " on" not in [part[:3] for part in page.text.split("<body>")[1].split("<script>")[0].split('"')]
    assert "unsafe" not in page.policy
    assert "innerHTML" not in page.text


@dataclass(kw_only=True)
class OpenPage:
    """A page, and what it complained of."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # A container has no user namespaces for the sandbox, and the page is our own.
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_models(tmp_path_factory.mktemp("models"), "colours", "picture", config="max_batch_size = 4\n")
    broken = folder / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.plan").write_bytes(b"not a plan")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with Server(folder, FREE) as found:
        yield found


@contextmanager
def _open(
    browser: Any, server: Server, *, size: tuple[int, int] = (1280, 800), scheme: Literal["light", "dark"] = "light"
) -> Iterator[OpenPage]:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    found = OpenPage(page=context.new_page())
    found.page.on("console", lambda message: found.problems.append(f"{message.type}: {message.text}"))
    found.page.on("pageerror", lambda error: found.problems.append(str(error)))
    found.page.on("dialog", lambda dialog: found.problems.append(f"dialog: {dialog.message}"))
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.goto(f"{server.http_url}/")
    found.page.wait_for_selector("html[data-ready]", timeout=20_000)
    yield found
    context.close()


def _choose(page: Any, model: str) -> None:
    page.click(f"button.name:text-is('{model}')")
    page.wait_for_selector(f"#model h2:has-text('{model}')")


@needs_browser
def test_it_shows_every_model_with_its_state(browser: Any, server: Server) -> None:
    with _open(browser, server) as found:
        rows = found.page.locator("#models tr")
        texts = [rows.nth(i).inner_text() for i in range(rows.count())]
        assert [text.split()[0] for text in texts] == ["broken", "colours", "picture"]
        assert "UNAVAILABLE" in texts[0]
        assert "plan" in texts[0], "the reason is shown"
        assert "READY" in texts[1]
        _choose(found.page, "picture")
        panel = found.page.inner_text("#model")
        assert SHAPE in panel
        assert "FP32" in panel
        assert "largest batch" in panel
        assert found.problems == []
        assert all(url.startswith((f"{server.http_url}/", "data:")) for url in found.requests)


@needs_browser
def test_a_model_is_tried_with_json(browser: Any, server: Server) -> None:
    with _open(browser, server) as found:
        _choose(found.page, "colours")
        found.page.fill("#try textarea", "[[0, 0, 1], [1, 1, 1]]")
        found.page.click("#run")
        found.page.wait_for_selector("#outcome pre")
        values = [float(part) for part in found.page.inner_text("#outcome pre").split(",")]
        assert len(values) == 16
        assert values[4] == max(values[:8])
        assert values[15] == max(values[8:])
        assert found.page.input_value("#try .row input") == "2, 3"
        assert found.problems == []


@needs_browser
@pytest.mark.parametrize(
    ("text", "message"),
    [("[[1, 2", "this is no JSON"), ("[[1], [2, 3]]", "different lengths"), ("[[1, 2]]", "shape"), ('["x"]', "")],
)
def test_what_is_wrong_with_an_input_is_said(browser: Any, server: Server, text: str, message: str) -> None:
    with _open(browser, server) as found:
        _choose(found.page, "colours")
        found.page.fill("#try textarea", text)
        found.page.click("#run")
        found.page.wait_for_selector("#outcome .problem")
        assert message in found.page.inner_text("#outcome .problem")
        assert not [problem for problem in found.problems if "400" not in problem]


@needs_browser
def test_a_model_is_tried_with_an_image(browser: Any, server: Server, tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    path.write_bytes(_make_png(20, 10, (255, 51, 0)))
    with _open(browser, server) as found:
        _choose(found.page, "picture")
        found.page.set_input_files("#try input[type=file]", path)
        found.page.wait_for_selector("canvas[width='8']")
        found.page.get_by_label("mean").fill("0.5")
        found.page.get_by_label("std").fill("0.5, 0.5, 2")
        found.page.click("#run")
        found.page.wait_for_selector("#outcome pre")
        values = [float(part) for part in found.page.inner_text("#outcome pre").split(",")]
        assert values == pytest.approx([2.0, 0.4, 0.75], abs=1e-4)
        assert found.problems == []


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (360, 740)])
def test_no_width_and_no_colours_break_it(
    browser: Any, server: Server, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    with _open(browser, server, size=size, scheme=scheme) as found:
        _choose(found.page, "picture")
        assert found.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        if target := os.environ.get("SCREENSHOTS"):
            found.page.screenshot(path=Path(target) / f"{scheme}-{size[0]}.png", full_page=True)
        assert found.problems == []


@needs_browser
def test_a_key_is_asked_for_and_kept_in_the_tab(browser: Any, folder: Path) -> None:
    with Server(folder, replace(FREE, api_key=KEY)) as server, _open(browser, server) as found:
        assert found.page.is_visible("#key-form")
        assert not found.page.is_visible("#list")
        found.page.fill("#key", "wrong")
        found.page.click("#key-form button")
        found.page.wait_for_selector("#problem:not([hidden])")
        found.page.fill("#key", KEY)
        found.page.click("#key-form button")
        found.page.wait_for_selector("#models tr")
        assert not found.page.is_visible("#key-form")
        assert KEY not in found.page.url


@needs_browser
def test_half_precision_comes_and_goes_as_numpy_has_it(browser: Any, server: Server) -> None:
    import ml_dtypes
    import numpy as np

    values = [0.0, -0.0, 1.0, -2.5, 65504.0, 65520.0, 6e-8, 5.96e-8, 6.1e-5, 1 / 3, 0.1, 2049.0, 2051.0]
    with _open(browser, server) as found:
        for name, kind in (("FP16", np.float16), ("BF16", ml_dtypes.bfloat16)):
            script = f"Array.from(new Uint16Array(encode('{name}', {values})))"
            bits = found.page.evaluate(script)
            with np.errstate(over="ignore"):
                expected = np.array(values, np.float32).astype(kind)
            assert bits == expected.view(np.uint16).tolist()
            back = found.page.evaluate(f"decode('{name}', new Uint16Array({bits}).buffer).map(String)")
            np.testing.assert_array_equal([float(text) for text in back], expected.astype(np.float64))


@needs_browser
def test_names_are_only_text(browser: Any, server: Server) -> None:
    with _open(browser, server) as found:
        entry = {"name": HOSTILE, "version": HOSTILE, "state": HOSTILE, "reason": HOSTILE}
        found.page.evaluate("entry => showModels([entry], entry, () => 0)", entry)
        assert found.page.inner_text("button.name") == HOSTILE
        assert found.page.locator("#models img").count() == 0
        assert found.problems == []


def _make_png(width: int, height: int, colour: tuple[int, int, int]) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
