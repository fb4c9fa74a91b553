"""`flux.util`: dates and tables of programs that print as `flux jobs` does."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from types import SimpleNamespace

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "src", "headrace", "compat", "python"))
from flux.eventlog import EventLogFormatter
from flux.util import OutputFormat, UtilDatetime, get_treedict, parse_datetime, set_treedict

NOW = datetime(2026, 11, 19, 8, 0, 0)
HEADINGS = {"name": "NAME", "size.cores": "CORES", "since": "SINCE"}


def row(name: str, cores: int = 0, since: float = 0.0) -> SimpleNamespace:
    return SimpleNamespace(name=name, size=SimpleNamespace(cores=cores), since=since)


@pytest.mark.parametrize(
    ("text", "future", "wanted"),
    [
        ("now", True, NOW),
        ("+1.5m", True, datetime(2026, 11, 19, 8, 1, 30)),
        ("Nov 21, 2026 8am", True, datetime(2026, 11, 21, 8)),
        ("7am", True, datetime(2026, 11, 20, 7)),
        ("7am", False, datetime(2026, 11, 19, 7)),
    ],
)
def test_a_date_is_read_as_commands_read_it(text: str, future: bool, wanted: datetime) -> None:
    assert parse_datetime(text, NOW, assumeFuture=future) == wanted


@pytest.mark.parametrize("text", ["blursday", "+1x", "-", "11/45/2026"])
def test_what_is_no_date_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid datetime"):
        parse_datetime(text, NOW)


def test_a_time_has_a_clock_and_a_column_in_its_format() -> None:
    time, epoch = UtilDatetime(2026, 11, 19, 8), UtilDatetime.fromtimestamp(0.0)
    assert (f"{time}", f"{time:%b%d::>7h}", f"{epoch:::>3h}", f"{epoch:%F::<2}") == (
        "2026-11-19T08:00:00",
        "  Nov19",
        "  -",
        "  ",
    )


def test_a_table_shows_attributes_under_its_headings() -> None:
    table = OutputFormat("{name:<6} {size.cores:>7d} {since!d:%Y::^8}", HEADINGS)
    assert table.fields == ["name", "size.cores", "since"]
    assert table.get_format() == "{0.name:<6} {0.size.cores:>7d} {0.since!d:%Y::^8}"
    assert table.header_format() == "{name:<6} {size.cores:>7} {since:^8}"
    assert table.header() == "NAME     CORES  SINCE  "
    assert table.format(row("a", 2, 86400.0 * 365)) == "a            2   1971  "
    with pytest.raises(ValueError, match="Unknown format field: nosuch"):
        OutputFormat("{nosuch}", HEADINGS)


def test_columns_vanish_and_widen_with_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    table, rows = OutputFormat("+:{name:<3} ?:{size.cores:>5}", HEADINGS), [row("long name"), row("b")]
    assert table.filter(rows) == "{name:<9} {size.cores:>5}"
    assert OutputFormat("+:{name:<3} ?:{since:>5}", HEADINGS).filter(rows) == "{name:<9}"
    table.print_items(rows, no_header=True)
    assert capsys.readouterr().out == "long name     0\nb             0\n"


def test_values_are_set_and_read_by_dotted_keys() -> None:
    tree = {"a": {"x": 1}}
    set_treedict(tree, "a.b.c", 2)
    assert tree == {"a": {"x": 1, "b": {"c": 2}}}
    assert (get_treedict(tree, "a.b.c"), get_treedict(tree, "a.x.y"), get_treedict(tree, "z", 5)) == (2, None, 5)


def test_an_eventlog_is_printed_as_commands_print_it() -> None:
    log = [
        {"timestamp": 1000.25, "name": "submit", "context": {"note": "\u0192"}},
        {"timestamp": 1000.5, "name": "clean"},
    ]

    def lines(**options: str) -> list[str]:
        formatter = EventLogFormatter(**options)
        return [formatter.format(entry) for entry in log]

    assert lines() == ['1000.250000 submit note="\u0192"', "1000.500000 clean"]
    assert lines(timestamp_format="offset") == ['0.000000 submit note="\u0192"', "0.250000 clean"]
    assert [json.loads(line) for line in lines(format="json")] == log
    assert "\033[" in lines(color="always")[0]
    for option in ("format", "timestamp_format", "color"):
        with pytest.raises(ValueError, match="foo"):
            EventLogFormatter(**{option: "foo"})
