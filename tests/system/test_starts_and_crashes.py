"""The record of an instance's starts and ends, in one folder over several runs, and `flux startlog`, which shows it."""

from __future__ import annotations

import re

import pytest
from instance import start
from option_lines import Line, answers, check, like, names

AT = r"\d{4}-\d\d-\d\d \d\d:\d\d"
_RUNNING = rf"{AT} - running \([\d.]+s\)\n"
_ENDED = rf"{AT} - {AT} \([\d.]+s\)\n"
_CRASHED = rf"{AT} - crashed\n"
_SHOW = "flux startlog; flux startlog --check --quiet; echo $?; flux dmesg | grep -c 'not shut down'"


def test_runs_are_listed_and_a_crash_is_told_until_the_next_shutdown(tmp_path):
    state = f"-Sstatedir={tmp_path}"

    def printed(script: str) -> str:
        done = start(state, script)
        assert not done.left
        return done.out

    assert re.fullmatch(rf"{_RUNNING}0\n0\n", printed(_SHOW))
    assert re.fullmatch(rf"{_ENDED}{_RUNNING}0\n0\n", printed(_SHOW))
    printed("kill -9 $(flux getattr broker.pid)")
    assert re.fullmatch(rf"{_ENDED}{_ENDED}{_CRASHED}{_RUNNING}1\n1\n", printed(_SHOW))
    assert re.fullmatch(rf"{_ENDED}{_ENDED}{_CRASHED}{_ENDED}{_RUNNING}0\n0\n", printed(_SHOW))


def test_an_archive_has_the_shutdown_and_a_start_from_it_goes_on_with_the_record(tmp_path):
    archive = f"{tmp_path}/all.tar"
    assert start(f"-Scontent.dump={archive}", "true").rc == 0
    done = start(f"-Scontent.restore={archive}", _SHOW)
    assert re.fullmatch(rf"{_ENDED}{_RUNNING}0\n0\n", done.out), done.out


def test_a_record_that_is_none_is_named_and_does_not_prevent_the_start(tmp_path):
    assert start(f"-Sstatedir={tmp_path}", "flux kvs put --raw admin.eventlog=x").rc == 0
    done = start(f"-Sstatedir={tmp_path}", "flux startlog || flux getattr size")
    assert done.out == "1\n"
    assert "admin.eventlog" in done.err
    assert "flux-startlog: Error decoding eventlog: admin.eventlog" in done.err


LINES = [
    Line("flux startlog", like(_RUNNING)),
    Line("flux exec -r 1 flux startlog --show-version", like(rf" {{19}}0\.88\.0  {_RUNNING}")),
    Line("flux startlog -v --quiet"),
    Line(
        "flux startlog --test-startlog-key=log",
        "flux-startlog: Error fetching eventlog: No such file or directory\n",
        1,
    ),
    Line(
        "flux startlog --test-startlog-key=log --post-start-event; "
        "flux startlog --test-startlog-key=log --post-finish-event; flux startlog --check --test-startlog-key=log",
        like(_ENDED),
    ),
    Line(
        "post() { flux startlog --test-startlog-key=log --post-start-event; }; post; post; "
        "flux startlog --test-startlog-key=log --check",
        like(_ENDED + _CRASHED + _RUNNING),
        1,
    ),
    Line(
        "flux exec -r 1 flux startlog --post-finish-event 2>&1 | head -1",
        "flux-startlog: Startlog events may only be posted from rank 0\n",
    ),
    Line(
        "FLUX_HANDLE_USERID=9999 FLUX_HANDLE_ROLEMASK=2 flux startlog",
        like("flux-startlog: Error fetching eventlog: .*\n"),
        1,
    ),
    Line("flux startlog x", like("Usage: flux-startlog .*"), 1),
]


@pytest.fixture(scope="module")
def startlog_answers(tmp_path_factory):
    return answers(LINES, tmp_path_factory.mktemp("startlog"), "--test-size=2")


@pytest.mark.parametrize("index", range(len(LINES)), ids=names(LINES))
def test_each_option_has_its_effect(index, startlog_answers):
    check(LINES[index], startlog_answers[index])
