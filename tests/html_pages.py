"""Pages of the service as tests read them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """A page's elements as (tag, attributes), and the texts in the cells of its table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self._cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.rows[-1][-1] += data


def page(client: Any, path: str = "/jobs", status: int = 200) -> Page:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return Page(answer.text)


def text_of(html: str) -> str:
    """The text that a reader sees, with single spaces."""
    return " ".join(re.sub("<[^>]*>", " ", html).split())


def form_token(client: Any, path: str) -> str:
    """The token in the forms of a page."""
    found = {attrs["value"] for _, attrs in Page(client.get(path).text).elements if attrs.get("name") == "csrf"}
    assert len(found) == 1
    return str(found.pop())
