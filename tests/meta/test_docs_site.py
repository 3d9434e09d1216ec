"""What makes the site of the documentation: places and links of pages, and nothing public that has no page."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest

from dovetail import errors
from dovetail._exports import EXPORTS
from dovetail.cli.catalogue import COMMANDS, PACKAGE_COMMANDS
from tools.docs_site import layout, versions
from tools.docs_site.api import group_names
from tools.docs_site.commands import EXAMPLES, find_moved, split_page
from tools.docs_site.dead_links import find_dead
from tools.docs_site.error_samples import SAMPLES
from tools.docs_site.errors import raise_sample, read_codes
from tools.docs_site.foreign import find_foreign
from tools.docs_site.gather import gather, show_notebook

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", [layout, versions], ids=["layout", "versions"])
def test_doctests(module: object) -> None:
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted > 0
    assert results.failed == 0


def test_links_lead_to_pages_of_the_site() -> None:
    text = "[a](report.md#tabs) [`b`](../SECURITY.md) [c](cli.md#dovetail-run) [d](https://e.org) `[e](f.md)`"
    shown, found = layout.rewrite_links(text, "docs/inputs.md", find_moved())
    expected = (
        "[a](report.md#tabs) [`b`](project/security.md) [c](reference/commands/run.md) [d](https://e.org) `[e](f.md)`"
    )
    assert shown == expected
    assert found == ["docs/report.md", "SECURITY.md", "docs/cli.md"]


def test_subscripts_are_no_links() -> None:
    assert layout.rewrite_links("made of inputs[i][j]", "docs/a.md", {})[0] == "made of inputs[i]\\[j]"


def test_a_link_to_a_folder_without_a_page_is_refused() -> None:
    with pytest.raises(SystemExit, match="a folder without README"):
        layout.rewrite_links("[tools](../tools)", "docs/inputs.md", {})


def test_every_file_that_pages_link_to_is_gathered(tmp_path: Path) -> None:
    gather(tmp_path, find_moved())
    assert {"index.md", "pages.md", "rules/R08.md", "rules/index.md", "notebooks/custom-layer.md"} <= {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")
    }
    assert (tmp_path / "images/report-layer.png").is_file()
    assert "title: R08 output shapes" in (tmp_path / "rules/R08.md").read_text(encoding="utf-8")


def test_a_notebook_is_a_page_with_its_outputs() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": ["1 + 1"], "outputs": [{"data": {"text/plain": ["2"]}}]},
        {"cell_type": "code", "source": ["t"], "outputs": [{"data": {"text/html": ["<b>\n\n  x</b>"]}}]},
    ]
    shown = show_notebook({"cells": cells})
    assert shown.startswith("# Title\n\n```python\n1 + 1\n```\n\n```text\n2\n```")
    assert '<div class="output">\n<b>\nx</b>\n</div>' in shown


def test_every_command_has_a_section_and_every_example_a_command() -> None:
    overview, sections = split_page((ROOT / "docs/cli.md").read_text(encoding="utf-8"))
    assert set(sections) == {*COMMANDS, *PACKAGE_COMMANDS} >= set(EXAMPLES)
    assert set(PACKAGE_COMMANDS) <= {*EXAMPLES, "serve"}, "serve is shown by a server that runs meanwhile"
    assert "## For scripts" in overview
    assert "## dovetail build" not in overview


def test_every_public_name_has_a_topic() -> None:
    assert sum(map(len, group_names().values())) == len(EXPORTS)


def test_every_error_has_a_page_and_a_code_that_is_explained() -> None:
    assert set(SAMPLES) == set(errors.__all__)
    assert {getattr(errors, name).exit_code for name in errors.__all__} <= set(read_codes())


def test_a_program_that_raises_another_error_is_told() -> None:
    assert "outside profile 0" in raise_sample("InputError", SAMPLES["InputError"])
    with pytest.raises(SystemExit, match="raises InputError"):
        raise_sample("ModelError", SAMPLES["InputError"])


def test_versions_stay_and_the_newest_is_first(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "assets"):
        (tmp_path / name).mkdir()
    versions.write_versions(tmp_path)
    listed = json.loads((tmp_path / "versions.json").read_text(encoding="utf-8"))
    assert [(row["version"], row["aliases"]) for row in listed] == [("0.10.0", ["latest"]), ("0.9.0", [])]
    assert 'url=0.10.0/"' in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "There is no such page" in (tmp_path / "404.html").read_text(encoding="utf-8")


def test_what_a_browser_would_fetch_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text('<a href="https://e.org">e</a><script src="assets/a.js"></script>', "utf-8")
    assert find_foreign(tmp_path) == []
    (tmp_path / "bad.html").write_text('<script async src="https://e.org/a.js"></script><p class="mermaid">', "utf-8")
    assert [row.partition(": ")[0] for row in find_foreign(tmp_path)] == ["bad.html", "bad.html"]


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/index.html").write_text('<h2 id="one two">A</h2><img src="../picture.png">', "utf-8")
    (tmp_path / "picture.png").touch()
    good = '<a href="a/"></a><a href="a/#one%20two"></a><a href="#"></a><a href="https://e.org/b#c"></a>'
    bad = '<a href="b/"></a><a href="a/#two"></a><a href="/a/"></a><img src="none.png">'
    (tmp_path / "index.html").write_text(good + bad, "utf-8")
    assert find_dead(tmp_path) == [f"index.html: {link}" for link in ("b/", "a/#two", "/a/", "none.png")]
