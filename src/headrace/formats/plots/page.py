"""A page of charts and tables as a single HTML file that loads nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.formats.plots.chart import CSS, escape

_STYLE = """\
body { margin: 1.5rem auto; padding: 0 1rem; max-width: 60rem; font: 1rem/1.45 system-ui, sans-serif;
  color: #16211f; background: #fbfcfc; }
table { border-collapse: collapse; } th, td { padding: .25rem .75rem; text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; } th:first-child { text-align: left; font-weight: 400; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; } .facts th { vertical-align: top; }
.scroll { overflow-x: auto; } tr { border-bottom: 1px solid #8884; }
.gallery { display: flex; flex-wrap: wrap; gap: 1rem 2rem; }
.gallery > * { flex: 0 1 28rem; min-width: min(100%, 20rem); }
pre { overflow-x: auto; padding: .5rem; border: 1px solid #8884; } .scroll, .gallery, details { margin: .75rem 0; }
@media (prefers-color-scheme: dark) { body { color: #e5ecea; background: #111817; } }
"""


def page(title: str, about: str, parts: Iterable[str]) -> str:
    """A page with a heading, a sentence about it, and parts that are HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>\n{_STYLE}{CSS}</style></head><body><main>\n"
        f"<h1>{escape(title)}</h1>\n<p>{escape(about)}</p>\n" + "\n".join(parts) + "\n</main></body></html>\n"
    )


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column has the names of the rows; its own name may be empty."""
    first, *others = columns
    corner = f'<th scope="col">{escape(first)}</th>' if first else "<td></td>"
    head = corner + "".join(f'<th scope="col">{escape(column)}</th>' for column in others)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in rows
    )
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and texts, whose lines are broken where the page ends."""
    body = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in rows)
    return f'<table class="facts"><tbody>{body}</tbody></table>'


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def gallery(charts: Iterable[str]) -> str:
    """Small charts, side by side where there is room."""
    return f'<div class="gallery">{"".join(charts)}</div>'


def code(text: str) -> str:
    """Text whose lines and blanks are kept."""
    return f'<pre tabindex="0">{escape(text)}</pre>'


def details(title: str, text: str) -> str:
    """Text as in `code`, which is shown when its title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{code(text)}</details>"
