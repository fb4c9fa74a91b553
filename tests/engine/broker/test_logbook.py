"""The ring of the log, what goes to stderr, the file and the leader, and lines that are none."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headrace.engine.broker.attrs import AttrError, AttrTable
from headrace.engine.broker.logbook import Logbook, format_line, parse_line, severity


def book(rank: int = 0, **attrs: str) -> Logbook:
    return Logbook(AttrTable({name.replace("_", "-"): value for name, value in attrs.items()}), rank)


def texts(log: Logbook) -> list[str]:
    return [parse_line(line)[4] for line in log.ring]


def test_a_line_reads_as_it_was_written() -> None:
    line = format_line(3, "7", "broker", "a text - with [all] of it", 1700000000.25)
    assert line == "<11>1 2023-11-14T22:13:20.250000Z 7 broker - - - a text - with [all] of it"
    assert parse_line(line) == (3, "2023-11-14T22:13:20.250000Z", "7", "broker", "a text - with [all] of it")


@pytest.mark.parametrize("line", ["", "no line", "<14 1 2 3 4 5 6 7", "<x>1 a b c d e f g"])
def test_what_is_no_syslog_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        book().append(line)


@pytest.mark.parametrize(
    ("level", "wanted"), [(logging.DEBUG, 7), (logging.CRITICAL, 2), (0, 0), (6, 6), (-5, 0), (99, 7)]
)
def test_levels_are_those_of_syslog_or_of_logging(level: int, wanted: int) -> None:
    assert severity(level) == wanted


def test_the_ring_keeps_the_newest_and_counts_all() -> None:
    log = book(log_ring_size="3")
    for number in range(5):
        log(logging.INFO, "test", f"line {number}")
    assert texts(log) == ["line 2", "line 3", "line 4"]
    assert log.count == 5
    log.clear()
    assert (texts(log), log.count) == ([], 5)


def test_lines_of_one_text_are_lines_of_the_log_and_a_long_one_is_cut() -> None:
    log = book()
    log(logging.INFO, "test", "one\ntwo\n")
    log(logging.INFO, "test", "x" * 100_000)
    assert texts(log)[:2] == ["one", "two"]
    assert texts(log)[2].endswith("x [cut]")
    assert len(log.ring[2]) < 9000


def test_a_users_line_is_one_line_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    log = book()
    log.append("<11>1 - 0 app - - - a\n<8>1 - 0 broker - - - b\x1b[2J\tc é")
    assert texts(log) == ["a <8>1 - 0 broker - - - b [2J c é"]
    # Without a time, which syslog allows, it is printed, too.
    assert capsys.readouterr().err == "- app.err[0]: a <8>1 - 0 broker - - - b [2J c é\n"


def test_what_is_below_the_level_is_not_kept() -> None:
    log = book(log_level="4")
    log(logging.INFO, "test", "quiet")
    log(logging.WARNING, "test", "heard")
    assert texts(log) == ["heard"]


def test_followers_hear_each_line_that_is_kept() -> None:
    log, heard = book(log_level="6"), []
    log.followers.append(heard.append)
    log(logging.INFO, "test", "a")
    log(logging.DEBUG, "test", "b")
    assert [parse_line(line)[4] for line in heard] == ["a"]


def test_errors_of_all_ranks_are_shown_by_the_leader_and_what_is_critical_where_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = format_line(3, "2", "test", "an error of another rank", 1700000000.25)
    book().append(line, local=False)
    assert capsys.readouterr().err == "Nov 14 22:13:20.250000 UTC 2023 test.err[2]: an error of another rank\n"
    follower = book(rank=2)
    follower(logging.ERROR, "test", "left to the leader")
    assert capsys.readouterr().err == ""
    follower(logging.CRITICAL, "test", "said here")
    assert capsys.readouterr().err.endswith("test.crit[2]: said here\n")


def test_a_follower_forwards_its_own_lines_up_to_a_level() -> None:
    log = book(rank=1, log_forward_level="4")
    sent: list[tuple[int, str]] = []
    log.forward = lambda level, line, _userid: sent.append((level, line))
    log(logging.INFO, "test", "not this")
    log(logging.ERROR, "test", "this")
    log.append(format_line(3, "5", "test", "of another rank", 0.0), local=False)
    assert [(level, parse_line(line)[4]) for level, line in sent] == [(3, "this")]


def test_a_line_of_a_guest_says_nothing_that_is_the_brokers_to_say() -> None:
    log = book(rank=3)
    sent: list[int | None] = []
    log.forward = lambda _level, _line, userid: sent.append(userid)
    log.append_for(1000, format_line(0, "0", "broker", "the end\nis near", 0.0))
    log.append_for(1000, format_line(7, "0", "x", "debug", 0.0))
    lines = [parse_line(line) for line in log.ring]
    assert [(level, host, appname, text) for level, _stamp, host, appname, text in lines] == [
        (6, "3", "user", "1000 broker: the end is near"),
        (7, "3", "user", "1000 x: debug"),
    ]
    assert not any(stamp.startswith("1970") for _level, stamp, *_rest in lines)
    assert sent == [1000, 1000]


def test_the_file_is_the_leaders(tmp_path: Path) -> None:
    path = tmp_path / "log"
    book(log_filename=str(path))(logging.INFO, "test", "kept")
    book(rank=1, log_filename=str(path))(logging.INFO, "test", "not twice")
    assert [parse_line(line)[4] for line in path.read_text().splitlines()] == ["kept"]
    book(log_filename=str(path))(logging.INFO, "test", "a name of bytes: \udcff")
    assert path.read_text().splitlines()[-1].endswith("a name of bytes: \\udcff")
    with pytest.raises(AttrError, match="No such file or directory"):
        book(log_filename=str(tmp_path / "missing" / "log"))


@pytest.mark.parametrize("attrs", [{"log_level": "8"}, {"log_stderr_level": "x"}, {"log_ring_size": "-1"}])
def test_a_level_or_size_that_is_none_is_refused(attrs: dict[str, str]) -> None:
    with pytest.raises(AttrError):
        book(**attrs)
