"""`flux.util`: dates and tables of programs that print as `flux jobs` does."""

from __future__ import annotations

import argparse
import json
import stat
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.wire.client.installation import BINDINGS

sys.path.insert(0, BINDINGS)
from flux.conf_builtin import conf_builtin_get
from flux.eventlog import EventLogFormatter
from flux.job import BatchConfig
from flux.util import (
    ColorAction,
    DisplayValue,
    Fileref,
    OutputFormat,
    Tree,
    UtilDatetime,
    del_treedict,
    get_treedict,
    parse_datetime,
    parse_fsd,
    set_treedict,
)

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


@pytest.mark.parametrize("text", ["foo", "-1", "nan", "1x"])
def test_what_is_no_duration_is_a_value_error_with_the_words_that_services_pass_on(text: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid Flux standard duration") as caught:
        parse_fsd(text)
    assert type(caught.value) is ValueError


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
    with pytest.raises(ValueError, match=r"^Unknown format field: nosuch$") as caught:
        OutputFormat("{nosuch}", HEADINGS)
    assert type(caught.value) is ValueError


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


def test_a_value_is_deleted_with_the_empty_dicts_that_it_leaves() -> None:
    tree = {"a": {"b": {"c": 1}}, "d": 2}
    with pytest.raises(KeyError):
        del_treedict(tree, "a.x.c")
    del_treedict(tree, "a.b.c", remove_empty=True)
    assert tree == {"d": 2}


def test_a_table_sorts_by_the_keys_of_its_format_or_others() -> None:
    few, many, more = row("few", 2, 1.0), row("many", 9, 2.0), row("more", 9, 3.0)
    table = OutputFormat("sort:-size.cores,name {name} {since}", HEADINGS)
    rows = [few, more, many]
    assert table.sort_items(rows) is rows
    assert rows == [many, more, few]
    assert table.get_format() == "sort:-size.cores,name {0.name} {0.since}"
    assert table.get_format(include_sort_prefix=False) == "{0.name} {0.since}"
    table.set_sort_keys("since")
    table.sort_items(rows)
    assert rows == [few, many, more]
    with pytest.raises(ValueError, match="Invalid sort key: nosuch"):
        table.set_sort_keys("-nosuch")


def test_a_table_is_copied_without_fields_or_without_expansion() -> None:
    text = "?+:{name:5.5} ?:{size.cores:4d} {since:.2f}"
    table = OutputFormat(text, HEADINGS)
    assert table.copy().get_format_prepended("") == text
    assert table.copy(["name", "since"]).get_format_prepended("0.") == " ?:{0.size.cores:4d}"
    assert table.copy(nullify_expansion=True).get_format_prepended("") == "?:{name} ?:{size.cores:4d} {since:.2f}"


def test_a_tree_is_drawn_with_equal_leaves_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    root = Tree("top", combine_children=True)
    root.append("leaf")
    root.append("branch").append("twig")
    root.append("leaf")
    root.render(style="ascii", truncate=False)
    root.render(level=1, skip_root=True)
    assert capsys.readouterr().out.splitlines() == [
        "top",
        "|-- 2*[leaf]",
        "`-- branch",
        "    `-- twig",
        "2*[leaf]",
        "branch",
        "└── twig",
    ]


def test_a_line_of_a_tree_is_cut_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "8")
    Tree("four and more").render()
    assert capsys.readouterr().out == "four an+\n"


def test_a_file_for_a_jobspec_is_data_text_or_a_path(tmp_path: Path) -> None:
    regular = stat.S_IFREG | 0o600
    assert Fileref({"a": 1}, perms=0o700) == {"mode": stat.S_IFREG | 0o700, "data": {"a": 1}}
    assert Fileref("line\n", encoding="utf-8") == {"mode": regular, "data": "line\n", "encoding": "utf-8"}
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe")
    assert Fileref(str(path), perms=0o600) == {"mode": regular, "data": "//4=", "encoding": "base64", "size": 2}
    with pytest.raises(ValueError, match="invalid encoding 'latin'"):
        Fileref("line", encoding="latin")


@pytest.mark.parametrize(
    ("argv", "no_color", "wanted", "enabled"),
    [
        ([], "", "auto", False),
        ([], "1", "never", False),
        (["--color"], "1", "always", True),
        (["--color=never"], "", "never", False),
    ],
)
def test_a_color_option_says_when_and_whether(
    argv: list, no_color: str, wanted: str, enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    parser = argparse.ArgumentParser()
    parser.add_argument("--color", action=ColorAction, metavar="WHEN")
    color = parser.parse_args(argv).color
    assert (color, color.enabled) == (wanted, enabled)


def test_an_instances_configuration_is_put_together_of_keys_files_and_text(tmp_path: Path) -> None:
    file = tmp_path / "conf.json"
    file.write_text('{"a": {"b": 2, "c": 3}}')
    conf = BatchConfig().update("a.b=1").update(str(file)).update('{"d":\n true}')
    assert (conf.config, conf.get("a.c"), conf.get("a.x", 4)) == ({"a": {"b": 2, "c": 3}, "d": True}, 3, 4)
    assert BatchConfig().config is None
    with pytest.raises(ValueError, match="--conf"):
        conf.update("{no\n")


def test_where_the_installation_keeps_what_has_names() -> None:
    assert conf_builtin_get("confdir", which="intree").startswith("/")
    for wrong in ({"name": "nosuch"}, {"name": "confdir", "which": "here"}):
        with pytest.raises(ValueError, match="invalid"):
            conf_builtin_get(**wrong)


def test_unset_values_come_first_and_texts_of_numbers_among_numbers() -> None:
    given = ["b", 10, "", "9", None, 2.5, "-", "a", True]
    assert [value.value for value in sorted(map(DisplayValue, given))] == ["", None, "-", True, 2.5, "9", 10, "a", "b"]
    assert DisplayValue("10") == DisplayValue(10.0) and DisplayValue("") == DisplayValue(None)
    rows = [SimpleNamespace(n=value) for value in (3, "", "-", 1)]
    assert [row.n for row in OutputFormat("sort:n {n}", headings={"n": "N"}).sort_items(rows)] == ["", "-", 1, 3]


@pytest.mark.parametrize("text", ["x", "1y", "-1s", "nan", ""])
def test_what_is_no_duration_is_named_as_one(text: str) -> None:
    with pytest.raises(ValueError, match="invalid Flux standard duration"):
        parse_fsd(fsd_string=text)


def test_dates_with_two_digits_of_a_year() -> None:
    assert parse_datetime("12/01/24") == datetime(2024, 12, 1)
