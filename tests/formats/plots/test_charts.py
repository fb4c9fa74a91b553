"""Every chart is well-formed SVG, tells its numbers to those who do not see it, and has no style of its own."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET

import pytest

from headrace.formats.plots import scale
from headrace.formats.plots.chart import CSS, SMALL, WIDE, Axis, Series, area, bars, box, histogram, line, quartiles

X, Y = Axis("time", scale.length), Axis("jobs")
CLOCK = Axis("time", scale.clock, scale.clock_ticks)
SVG = "{http://www.w3.org/2000/svg}"
CHARTS = {
    "line": lambda: line("T <&>", "A", [Series("a", [(0, 1), (60, -3)]), Series("b", [(0, 2)])], X, Y),
    "no line": lambda: line("T <&>", "A", [], X, Y),
    "area": lambda: area("T <&>", "A", [Series("a", [(0, 1), (9, 2)]), Series("b", [(0, 2), (9, 0)])], X, Y),
    "no area": lambda: area("T <&>", "A", [], X, Y),
    "bars": lambda: bars("T <&>", "A", ["<1>", "2"], [("s", [1, 2]), ("t", [0, 5])], "size", Y),
    "no bars": lambda: bars("T <&>", "A", [], [], "size", Y),
    "histogram": lambda: histogram("T <&>", "A", [0, 1, 5, 10, 99], [0, 1, 10], X, Y),
    "small": lambda: area("T <&>", "A", [Series("a", [(0, 1)]), Series("b", [(0, 2)])], CLOCK, Y, SMALL),
    "box": lambda: box("T <&>", "A", [("<a>", [1, 2, 3]), ("none", [])], "size", Y),
}


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_a_picture_with_a_title_within_its_frame(name: str) -> None:
    root = ET.fromstring(CHARTS[name]())
    assert root.tag == f"{SVG}svg" and root.get("role") == "img" and root.get("aria-label") == "T <&>. A"
    assert [child.text for child in root[:2]] == ["T <&>", "A"]
    size = SMALL if name == "small" else WIDE
    assert root.get("viewBox") == f"0 0 {size.width:g} {size.height:g}"
    for element in root.iter():
        assert "style" not in element.attrib and not any(key.startswith("on") for key in element.attrib)
        for key, most in (("x", size.width), ("y", size.height)):
            assert 0 <= float(element.get(key, "0")) <= most, ET.tostring(element)


def test_areas_are_stacked() -> None:
    root = ET.fromstring(CHARTS["area"]())
    lower, upper = (path.get("d", "") for path in root.iter(f"{SVG}path") if "fill" in path.get("class", ""))
    assert lower.split("L")[0][1:] == upper.rstrip("Z").split("L")[-1]
    with pytest.raises(ValueError, match="same places"):
        area("t", "a", [Series("a", [(0, 1)]), Series("b", [(1, 1)])], X, Y)


def test_bars_and_histograms_tell_each_amount() -> None:
    told = [one.text for one in ET.fromstring(CHARTS["bars"]()).iter(f"{SVG}title")][1:]
    assert told == ["<1>, s: 1", "<1>, t: 0", "2, s: 2", "2, t: 5"]
    told = [one.text for one in ET.fromstring(CHARTS["histogram"]()).iter(f"{SVG}title")][1:]
    assert told == ["0 s to 1 s: 1", "1 s to 10 s: 3"]
    with pytest.raises(ValueError, match="2 values"):
        bars("t", "a", ["1", "2"], [("s", [1])], "x", Y)


def test_quartiles_are_values_that_occur() -> None:
    assert quartiles([3, 1, 2, 4]) == (1, 1, 2, 3, 4) and quartiles([7]) == (7, 7, 7, 7, 7)


@pytest.mark.parametrize("span", [(0, 1), (0, 97), (-3, 4), (0, 0), (5, 5), (0, 1e-6), (0, 123456)])
def test_marks_are_round_and_cover_the_values(span: tuple[float, float]) -> None:
    found = scale.ticks(*span)
    assert 2 <= len(found) <= 8 and found[0] <= span[0] and found[-1] >= span[1]


@pytest.mark.parametrize("span", [3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 90 * 86400])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata"])
def test_marks_of_a_clock_are_at_round_times_of_the_zone(monkeypatch: pytest.MonkeyPatch, zone: str, span: int) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        # The night in which clocks of Berlin go back is the 25 October 2026.
        for begin in (1792900000.0, 1764201234.0):
            found = scale.clock_ticks(begin, begin + span)
            assert 2 <= len(found) <= 7 and begin <= found[0] and found[-1] <= begin + span
            texts = [scale.clock(mark) for mark in found]
            if span > 2 * 86400:
                assert not any(":" in text for text in texts) and len(set(texts)) == len(texts)
            else:
                assert all(text[-1] in "05" for text in texts if ":" in text)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_lengths_and_numbers_on_an_axis() -> None:
    assert [scale.length(n) for n in (0, 90, 7200, 172800)] == ["0 s", "1.5 min", "2 h", "2 d"]
    assert [scale.number(n) for n in (0.0, 0.25, 1200.4)] == ["0", "0.25", "1200"]


def test_each_series_has_a_colour_in_both_themes() -> None:
    for number in range(1, 7):
        assert CSS.count(f".fill.series-{number} ") == CSS.count(f".line.series-{number} ") == 2
