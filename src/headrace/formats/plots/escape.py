"""Texts in SVG and HTML. The function of the standard library comes with a table of all named characters of HTML, which
is larger than all charts, and would be in the view as well.
"""

from __future__ import annotations

_SPECIAL = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def escape(text: str) -> str:
    """A text as it may stand between tags and in a quoted attribute."""
    return text.translate(_SPECIAL)
