"""Charts with a row for each category: well-formed, within their frame, and each number in a title."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from headrace.formats.plots import scale
from headrace.formats.plots.chart import Axis, shortened
from headrace.formats.plots.rows import Estimate, Spread, ratios, spreads, stacks

SVG = "{http://www.w3.org/2000/svg}"
SECONDS = Axis("seconds", scale.figure)
LOG = Axis("seconds", scale.figure, scale.log_ticks)
ONE = Spread("<a> with a name that is far too long for a chart of this width", [1, 2, 3, 4, 9], (2, 3, 4), (1, 9), {4})
CHARTS: dict[str, Callable[[], str]] = {
    "spreads": lambda: spreads(
        "T <&>", "A", [ONE, Spread("equal", [3, 3], (3, 3, 3)), Spread("none", [], (0, 0, 0))], SECONDS
    ),
    "logarithmic": lambda: spreads("T <&>", "A", [ONE, Spread("b", [1e6], (1e6, 1e6, 1e6))], LOG, log=True),
    "no spreads": lambda: spreads("T <&>", "A", [], SECONDS),
    "equal spreads": lambda: spreads("T <&>", "A", [Spread("zero", [0, 0], (0, 0, 0))], SECONDS),
    "stacks": lambda: stacks("T <&>", "A", ["<p>", "q"], [("<a>", [1, 2]), ("b", [0, 0.5])], SECONDS),
    "no stacks": lambda: stacks("T <&>", "A", [], [], SECONDS),
    "ratios": lambda: ratios("T <&>", "A", [Estimate("<a>", 0.9, (0.8, 1.1)), Estimate("b", 1.01)], "ratio"),
    "far ratios": lambda: ratios("T <&>", "A", [Estimate("a", 1e-9, (1e-12, 1e9))], "ratio"),
    "no ratios": lambda: ratios("T <&>", "A", [], "ratio"),
}


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_a_picture_with_a_title_within_its_frame(name: str) -> None:
    root = ET.fromstring(CHARTS[name]())
    assert root.get("role") == "img" and root.get("aria-label") == "T <&>. A"
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    for element in root.iter():
        assert "style" not in element.attrib
        assert 0 <= float(element.get("x", "0")) <= width and 0 <= float(element.get("y", "0")) <= height
        for x, y in re.findall(r"M([-0-9.e]+) ([-0-9.e]+)", element.get("d", "")):
            assert -5 <= float(x) <= width + 5 and 0 <= float(y) <= height, ET.tostring(element)


def titles(svg: str) -> list[str]:
    return [one.text or "" for one in ET.fromstring(svg).iter(f"{SVG}title")][1:]


def test_rows_tell_their_numbers() -> None:
    told = titles(CHARTS["spreads"]())
    assert told[0] == f"{ONE.name}: median 3, half from 2 to 4, interval of the median 1 to 9"
    assert "equal: median 3, half from 3 to 3" in told and not any("none" in one for one in told)
    assert titles(CHARTS["stacks"]()) == ["<a>, <p>: 1", "<a>, q: 2", "b, q: 0.5"]
    assert "<a>: 0.9 (0.8 to 1.1)" in titles(CHARTS["ratios"]())
    with pytest.raises(ValueError, match="2 values"):
        stacks("t", "a", ["p", "q"], [("row", [1])], SECONDS)


def dots(svg: str, colour: int) -> list[float]:
    paths = [one.get("d", "") for one in ET.fromstring(svg).iter() if one.get("class") == f"line dots series-{colour}"]
    return [float(x) for path in paths for x in re.findall(r"M([0-9.]+)", path)]


def test_outliers_are_drawn_in_their_own_colour_and_none_is_left_out_of_a_large_sample() -> None:
    assert len(dots(CHARTS["spreads"](), 1)) == 6 and len(dots(CHARTS["spreads"](), 4)) == 1
    values = [float(number % 10) for number in range(5000)]
    values[4321] = 99.0
    svg = spreads("t", "a", [Spread("many", values, (2, 5, 8), None, {4321})], SECONDS)
    assert 300 <= len(dots(svg, 1)) <= 320 and len(dots(svg, 4)) == 1
    assert dots(svg, 4)[0] > max(dots(svg, 1))


def test_names_are_shortened_but_titles_have_them_whole() -> None:
    svg = CHARTS["spreads"]()
    texts = [one.text or "" for one in ET.fromstring(svg).iter(f"{SVG}text")]
    assert [text for text in texts if text.startswith("<a>")] == [ONE.name[:47] + "…"]
    assert [shortened(text, 4) for text in ("", "abcd", "abcde", "漢字", "漢字x")] == [
        "",
        "abcd",
        "abc…",
        "漢字",
        "漢…",
    ]
