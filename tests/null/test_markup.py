"""What goes into pages of notebooks: every text is escaped, whoever wrote it."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from dovetail import markup


class Tags(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attrs)}

    def handle_data(self, data: str) -> None:
        self.text += data


HOSTILE = st.text() | st.sampled_from(["<script>alert(1)</script>", '"><img src=x onerror=y>', "</td></table>", "&lt;"])


@given(HOSTILE, HOSTILE)
def test_texts_add_no_tags(first: str, second: str) -> None:
    table = markup.table([first, "b"], [[first, second]], right=[1])
    page = markup.join([markup.heading(first, second), markup.line(second), markup.fold(first, table)])
    known = {"div", "b", "span", "style", "details", "summary", "table", "thead", "tbody", "tr", "th", "td"}
    assert Tags(page).found <= known


def test_texts_are_shown_as_they_are() -> None:
    assert Tags(markup.line("<b> & 'x'")).text == "<b> & 'x'"
    assert Tags(markup.line("a\nb\x1b[0m")).text == r"a\nb\x1b[0m"
    assert len(Tags(markup.line("x" * 1000)).text) == 200


def test_long_tables_are_cut_and_say_so() -> None:
    page = markup.table(["n"], [[n] for n in range(250)])
    assert page.count("<tr>") == 102
    assert "and 150 more" in page
