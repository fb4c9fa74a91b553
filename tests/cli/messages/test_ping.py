"""Pings: what is no target or interval, and who does not answer."""

from __future__ import annotations

import errno
import sys
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.messages import ping

ANSWER = {"seq": 0, "pad": "", "time.tv_sec": 0, "time.tv_nsec": 0, "rank": 2, "route": "a!b"}


@pytest.fixture
def pinged(answers: Any, capsys: Any) -> Any:
    def run(argv: list[str], *given: Any) -> list[str]:
        answers(ping, {"hostlist": "n[0-2]", "broker.ping": list(given), "kvs.ping": list(given)})
        assert ping.main(argv) == 0
        return str(capsys.readouterr().out).splitlines()

    return run


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["2"], "2!broker"),
        (["n2"], "n2!broker (rank 2)"),
        (["any"], "any!broker"),
        (["upstream"], "upstream!broker"),
        (["upstream!kvs"], "upstream!kvs"),
        (["kvs"], "any!kvs"),
        (["any!kvs"], "any!kvs"),
        (["n1!kvs"], "n1!kvs (rank 1)"),
        (["-r", "n1", "kvs"], "n1!kvs (rank 1)"),
        (["-r", "upstream", "kvs"], "upstream!kvs"),
        (["1!"], "1!broker"),
    ],
)
def test_a_target_is_a_service_a_rank_a_host_or_two_of_them(argv: list[str], shown: str, pinged: Any) -> None:
    assert pinged(["-c1", *argv], ANSWER)[0] == f"flux-ping {shown}"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-r", "n9", "kvs"], "invalid nodeid/host: 'n9'"),
        (["-i", "soon", "2"], "--interval: 'soon' is not a number of seconds"),
        (["-i", "nan", "2"], "--interval"),
        (["-i", "-1", "2"], "interval must be >= 0"),
        (["-c", "x", "2"], "requires an integer"),
        (["-c", "-1", "2"], "count must be >= 0"),
        (["-p", "4X", "2"], "requires a size, such as 512, 4K or 2M, got '4X'"),
        (["--batch", "2"], "--batch should only be used with --count"),
        (["-r", "1", "2!kvs"], "--rank and TARGET both try to specify a nodeid"),
        (["4294967295!kvs"], "invalid nodeid/host: '4294967295'"),
    ],
)
def test_what_cannot_be_is_refused(argv: list[str], text: str, pinged: Any) -> None:
    with pytest.raises(CommandError, match=text):
        pinged(argv, ANSWER)


@pytest.mark.parametrize(
    ("target", "asked"),
    [("2!kvs", "2!kvs.ping"), ("kvs", "kvs.ping"), ("any!kvs", "kvs.ping"), ("upstream", "upstream!broker.ping")],
)
def test_a_refusal_is_told_with_who_was_asked_and_in_the_words_of_its_number(
    target: str, asked: str, pinged: Any
) -> None:
    with pytest.raises(CommandError) as refused:
        pinged(["-c1", target], OSError(errno.ENOSYS, "not here"))
    assert refused.value.text == f"{asked}: Function not implemented"


def test_what_comes_back_is_as_long_as_what_was_sent(pinged: Any) -> None:
    assert " pad=3072 " in pinged(["-c1", "-p", "3K", "2"], {**ANSWER, "pad": "z" * 3072})[1]
    with pytest.raises(CommandError, match="padding contents invalid"):
        pinged(["-c1", "-p", "3K", "2"], ANSWER)


@pytest.mark.parametrize("at_terminal", [True, False])
def test_a_broker_whose_answer_is_a_timeout_is_not_waited_for(
    at_terminal: bool, pinged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: at_terminal)
    with pytest.raises(CommandError, match="Connection timed out"):
        pinged(["-c1", "2!kvs"], TimeoutError(errno.ETIMEDOUT, "its own words"))
