"""Pings: what is no target or interval, and who does not answer."""

from __future__ import annotations

import errno
import sys
from typing import Any

import pytest

from headrace.cli import ping
from headrace.cli.errors import CommandError

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
        (["n2"], "2!broker"),
        (["kvs"], "any!kvs"),
        (["any!kvs"], "any!kvs"),
        (["n1!kvs"], "1!kvs"),
        (["-r", "n1", "kvs"], "1!kvs"),
        (["1!"], "1!broker"),
    ],
)
def test_a_target_is_a_service_a_rank_a_host_or_two_of_them(argv: list[str], shown: str, pinged: Any) -> None:
    assert pinged(["-c1", *argv], ANSWER)[0] == f"flux-ping {shown}"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-r", "n9", "kvs"], "invalid nodeid/host: 'n9'"),
        (["-i", "soon", "2"], "--interval: 'soon' is no number of seconds"),
        (["-i", "nan", "2"], "--interval"),
        (["-i", "-1", "2"], "--interval"),
        (["-c", "x", "2"], "requires an integer"),
        (["--batch", "2"], "--batch requires --count"),
    ],
)
def test_what_cannot_be_is_refused(argv: list[str], text: str, pinged: Any) -> None:
    with pytest.raises(CommandError, match=text):
        pinged(argv, ANSWER)


def test_a_refusal_is_told_with_who_was_asked(pinged: Any) -> None:
    with pytest.raises(CommandError) as refused:
        pinged(["-c1", "2!kvs"], OSError(errno.ENOSYS, "not here"))
    assert refused.value.text == "2!kvs.ping: not here"


@pytest.mark.parametrize("at_terminal", [True, False])
def test_a_broker_whose_answer_is_a_timeout_is_not_waited_for(
    at_terminal: bool, pinged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: at_terminal)
    with pytest.raises(CommandError, match="its own words"):
        pinged(["-c1", "2!kvs"], TimeoutError(errno.ETIMEDOUT, "its own words"))
