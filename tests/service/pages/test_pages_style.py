"""The style sheet: every text can be read in both themes (WCAG 2.2, contrast of 4.5 and more)."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

import headrace

CSS = (Path(headrace.__file__).parent / "service/pages/static/style.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{(.*?)\}", CSS, re.S)
)
TEXTS = ("text", "soft", "accent", "pending", "running", "completed", "failed", "canceled", "magenta")


def luminance(color: str) -> float:
    """Relative luminance, as WCAG defines it."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_has_the_largest_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_each_text_can_be_read(theme: dict[str, str]) -> None:
    for text, ground in product(TEXTS, ("ground", "raised")):
        assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)


def test_both_themes_have_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys() == {*TEXTS, "ground", "raised", "line"}
    assert set(re.findall(r"var\(--([a-z]+)\)", CSS)) <= LIGHT.keys()
