"""The PMI-1 server by its lines: barriers, pairs, and requests that are wrong."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.shell.pmi import PmiServer


class Served:
    """A server of `ntasks` local tasks with what it called and answered."""

    def __init__(self, ntasks: int = 2) -> None:
        self.entered: list[dict[str, str]] = []
        self.aborted: list[tuple[int, int, str]] = []
        abort = lambda *what: self.aborted.append(what)  # noqa: E731
        self.blocked: list[str] = []
        preset = {"flux.instance-level": "1"}
        self.server = PmiServer("fA", 4, ntasks, preset, self.entered.append, abort, self.blocked.append)
        self.answers: dict[int, list[str]] = {local: [] for local in range(ntasks)}

    def say(self, line: str, local: int = 0) -> str:
        """The answer, "" if there is none yet."""
        before = len(self.answers[local])
        self.server.line(line, local, lambda data: self.answers[local].append(data.decode()))
        return "".join(self.answers[local][before:])


def test_a_session_begins_and_ends() -> None:
    pmi = Served()
    assert pmi.say("cmd=init pmi_version=1 pmi_subversion=1") == (
        "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n"
    )
    assert pmi.say("cmd=init pmi_version=2") == "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1\n"
    assert pmi.say("cmd=get_maxes") == "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=1024\n"
    assert pmi.say("cmd=get_universe_size") == "cmd=universe_size rc=0 size=4\n"
    assert pmi.say("cmd=get_my_kvsname") == "cmd=my_kvsname rc=0 kvsname=fA\n"
    assert pmi.say("cmd=finalize") == "cmd=finalize_ack rc=0\n"


def test_a_barrier_waits_for_all_tasks_here_then_for_all_nodes() -> None:
    pmi = Served()
    pmi.say("cmd=put kvsname=fA key=k value=v")
    assert pmi.say("cmd=barrier_in", 0) == ""
    assert pmi.entered == []
    assert pmi.say("cmd=barrier_in", 1) == ""
    assert pmi.entered == [{"k": "v"}]
    pmi.server.complete({"k": "v", "far": "away"})
    assert pmi.answers == {0: ["cmd=put_result rc=0 msg=success\n", "cmd=barrier_out rc=0\n"], 1: [pmi.answers[1][0]]}
    assert pmi.say("cmd=get kvsname=fA key=far") == "cmd=get_result rc=0 msg=success value=away\n"
    for local in (0, 1):
        pmi.say("cmd=barrier_in", local)
    assert pmi.entered == [{"k": "v"}, {}], "pairs travel once"


def test_a_command_with_a_hyphen_is_the_same_command() -> None:
    pmi = Served()
    assert pmi.say("cmd=get-universe-size") == "cmd=universe_size rc=0 size=4\n"
    assert pmi.say("cmd=barrier-in", 0) == pmi.say("cmd=barrier_in", 1) == ""
    assert pmi.entered == [{}]
    pmi.server.complete({})
    assert pmi.answers[0][-1] == pmi.answers[1][-1] == "cmd=barrier_out rc=0\n"
    assert pmi.say("cmd=no-such") == "cmd=no-such rc=-1 msg=unknown_command\n"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=40))
def test_a_value_comes_back_as_it_was_put(value: str) -> None:
    pmi = Served()
    pmi.say(f"cmd=put kvsname=fA key=k value={value}")
    assert pmi.say("cmd=get kvsname=fA key=k") == f"cmd=get_result rc=0 msg=success value={value}\n"


@pytest.mark.parametrize(
    ("key", "value", "answer"),
    [
        ("k" * 63, "v" * 1023, "rc=0 msg=success"),
        ("", "v", "rc=-1 msg=key_or_value_too_long"),
        ("k" * 64, "v", "rc=-1 msg=key_or_value_too_long"),
        ("k", "v" * 1024, "rc=-1 msg=key_or_value_too_long"),
        # lengths are bytes
        ("k", "ü" * 511, "rc=0 msg=success"),
        ("k", "ü" * 512, "rc=-1 msg=key_or_value_too_long"),
        ("ü" * 32, "v", "rc=-1 msg=key_or_value_too_long"),
        ("k", "\udcff", "rc=-1 msg=key_or_value_not_utf8"),
        ("\udcff", "v", "rc=-1 msg=key_or_value_not_utf8"),
    ],
)
def test_a_pair_is_taken_if_it_is_text_that_fits_a_clients_buffers(key: str, value: str, answer: str) -> None:
    assert Served().say(f"cmd=put kvsname=fA key={key} value={value}") == f"cmd=put_result {answer}\n"


def test_bytes_that_are_not_utf8_end_nothing() -> None:
    pmi = Served()
    assert pmi.say("cmd=\udcff") == "cmd=? rc=-1 msg=unknown_command\n"
    assert "rc=-1" in pmi.say("cmd=get key=\udcff")
    pmi.say("cmd=abort exitcode=3 error_msg=\udcff")
    assert pmi.aborted == [(0, 3, "?")]


_lines = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=60)


@given(_lines.filter(lambda line: not re.search("cmd=(barrier[-_]in|abort)", line)))
def test_any_line_is_answered_but_a_barrier_or_an_abort(line: str) -> None:
    assert Served().say(line).startswith("cmd=")


@pytest.mark.parametrize(
    ("code", "number"), [("3", 3), ("-1", -1), ("", 1), ("lots", 1), ("9" * 5000, 1), ("²", 1), ("1_0", 1)]
)
def test_an_abort_has_an_exit_code_whatever_the_task_said(code: str, number: int) -> None:
    pmi = Served()
    assert pmi.say(f"cmd=abort exitcode={code} error_msg=out", 1) == ""
    assert pmi.aborted == [(1, number, "out")]


def test_who_waits_in_a_barrier_is_told_of_a_task_that_will_not_come() -> None:
    pmi = Served()
    for local in (0, 1):
        pmi.say("cmd=init pmi_version=1 pmi_subversion=1", local)
    pmi.say("cmd=barrier_in", 1)
    assert pmi.server.is_awaited(0, by_default=False)
    pmi.server.block("task 0 is gone")
    assert pmi.blocked == ["task 0 is gone"]


def test_who_comes_late_to_such_a_barrier_is_told_too() -> None:
    pmi = Served()
    pmi.server.block("task 0 is gone")
    assert pmi.blocked == []
    pmi.say("cmd=barrier_in", 1)
    assert pmi.blocked == ["task 0 is gone"]


def test_a_task_without_a_session_is_missed_only_if_it_is_sure_to_have_one() -> None:
    pmi = Served()
    assert not pmi.server.is_awaited(0, by_default=False)
    assert pmi.server.is_awaited(0, by_default=True)
    pmi.say("cmd=init pmi_version=1 pmi_subversion=1")
    pmi.say("cmd=finalize")
    assert not pmi.server.is_awaited(0, by_default=True)
