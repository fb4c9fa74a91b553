"""docs/dev/rfcs.md names files and tests that are there, and every RFC of Flux that the code names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from page_blocks import ROOT

PAGE = ROOT / "docs/dev/rfcs.md"
SOURCE = ROOT / "src/headrace"
TESTS = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
# "RFC 3", "RFC 14, 25", "RFCs 27 and 28"; those of the IETF have four digits, those of ZeroMQ say so.
_NAMED = re.compile(r"(?<!ZeroMQ )\bRFCs? (\d+(?:(?:, | and )(?:RFC )?\d+)*)")


class Row(NamedTuple):
    rfc: int
    part: str
    files: list[str]
    tests: list[str]


def rows() -> list[Row]:
    """The rows of the table; a row without a number goes on with the RFC above it."""
    found: list[Row] = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and (cells[0].isdigit() or (found and not cells[0])):
            number = int(cells[0]) if cells[0] else found[-1].rfc
            found.append(Row(number, cells[1], *(re.findall(r"`([^`]+)`", cell) for cell in cells[2:])))
    return found


def rfcs_in(text: str) -> set[int]:
    """The RFCs of Flux that a text names."""
    numbers = {int(number) for names in _NAMED.findall(text) for number in re.findall(r"\d+", names)}
    return {number for number in numbers if number < 100}


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.rfc} {row.part}")
def test_the_files_and_tests_of_a_row_are_there(row: Row) -> None:
    assert row.files and row.tests
    for name in row.files:
        path = SOURCE / name
        assert path.is_file(), f"docs/dev/rfcs.md: RFC {row.rfc}: src/headrace/{name} is not there"
        assert row.rfc in rfcs_in(path.read_text()), f"src/headrace/{name} does not name RFC {row.rfc}"
    missing = sorted(set(row.tests) - TESTS)
    assert not missing, f"docs/dev/rfcs.md: RFC {row.rfc}: no test is named {missing}"


def test_every_rfc_that_the_code_names_has_a_row() -> None:
    named: dict[int, Path] = {}
    for path in SOURCE.rglob("*.py"):
        named.update(dict.fromkeys(rfcs_in(path.read_text()), path))
    there = {row.rfc for row in rows()}
    assert {number: path for number, path in named.items() if number not in there} == {}
    assert len(there) > 35


def test_rfcs_are_told_apart() -> None:
    assert rfcs_in("(RFC 3, 6 and 12), RFC 5424, ZeroMQ RFC 4, RFCs 27 and 28, RFC 14, RFC 25") == {
        3,
        6,
        12,
        27,
        28,
        14,
        25,
    }
