"""Charts of points: intervals, lines and logarithmic axes."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest

from headrace.formats.plots import scale
from headrace.formats.plots.chart import Axis
from headrace.formats.plots.points import Cloud, Point, points

SVG = "{http://www.w3.org/2000/svg}"
X, Y = Axis("size", scale.figure), Axis("seconds", scale.figure)
MEASURED = Cloud("<lammps>", [Point(1, 8, (7, 9)), Point(2, 4), Point(4, 2, (1.9, 2.2))], joined=True)
IDEAL = Cloud("ideal", [Point(1, 8), Point(4, 2)], dashed=True)


def places(svg: str) -> list[tuple[float, float]]:
    circles = ET.fromstring(svg).iter(f"{SVG}circle")
    return [(float(one.get("cx", "")), float(one.get("cy", ""))) for one in circles]


def test_on_logarithmic_axes_a_power_law_is_a_straight_line() -> None:
    svg = points("t", "a", [MEASURED, IDEAL], X, Y, log_x=True, log_y=True)
    (a, b), (c, d), (e, f) = places(svg)
    assert c - a == pytest.approx(e - c, abs=0.2) and d - b == pytest.approx(f - d, abs=0.2)
    assert len(re.findall('class="line series-2 dashed"', svg)) == 1
    told = [one.text for one in ET.fromstring(svg).iter(f"{SVG}title")]
    assert told[1:] == ["<lammps>, 1: 8 (7 to 9)", "<lammps>, 2: 4", "<lammps>, 4: 2 (1.9 to 2.2)"]


def test_many_points_are_one_path() -> None:
    svg = points("t", "a", [Cloud("", [Point(n, math.sin(n)) for n in range(5000)])], X, Y)
    assert not places(svg) and svg.count("<path") < 15 and svg.count("h0") == 5000


@pytest.mark.parametrize("given", [[], [Cloud("", [])], [Cloud("", [Point(0, 0)])], [Cloud("", [Point(5, 1e-320)])]])
def test_no_points_and_equal_points_are_a_chart(given: list[Cloud]) -> None:
    root = ET.fromstring(points("t", "a", given, X, Y, from_zero=True))
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places(ET.tostring(root, encoding="unicode")))


@pytest.mark.parametrize(
    "span", [(1, 2), (0.9, 1.1), (1, 1), (3, 4000), (1e-9, 1e9), (2e-5, 3e-5), (0.02, 0.05), (1e-140, 1e140)]
)
def test_marks_of_a_logarithmic_axis_cover_the_values(span: tuple[float, float]) -> None:
    found = scale.log_ticks(*span)
    assert 2 <= len(found) <= 14 and 0 < found[0] <= span[0] * (1 + 1e-9) and found[-1] >= span[1] * (1 - 1e-9)
    assert found == sorted(set(found))


def test_numbers_have_four_digits_or_as_many_as_tell_them_apart() -> None:
    assert [scale.figure(n) for n in (0, 12.0, 0.25134, 1234567, 1.5e12, 1e-7, -3.5)] == [
        *("0", "12", "0.2513", "1234567", "1.5e+12", "1e-07", "-3.5")
    ]
    assert [scale.measured(n) for n in (0, 12.0, 0.09999999, 1234567, 1.5e12)] == [
        *("0.000", "12.00", "0.1000", "1234567", "1.500e+12")
    ]
    shown = scale.figures(1000.001, 1000.004)
    assert shown(1000.001) != shown(1000.002)
    assert scale.figures(5, 5)(5) == "5" and scale.figures(0, 0)(0) == "0"


def test_a_span_is_never_empty() -> None:
    for values in ([], [3.0], [0.0, 0.0], [-2.0], [1.0, 1.0 + 1e-15], [5e-324]):
        low, high = scale.span(values)
        assert low < high and all(low <= value <= high for value in values)


@pytest.mark.parametrize("end", [0.5, 59, 61, 3600, 7 * 3600, 86400 * 40, 86400 * 4000])
def test_marks_of_a_length_of_time_are_round_and_few(end: float) -> None:
    found = scale.length_ticks(0, end)
    assert 2 <= len(found) <= 9 and found[0] == 0
