"""Environments in files: what a start names is what the job had, and no more files are made than are of use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.agent import environments
from headrace.engine.agent.environments import Named, Read

USUAL = {f"VARIABLE_{number}": f"/some/path/{number}" for number in range(40)}


def _sent(named: Named, environment: dict[str, Any], read: Read) -> dict[str, Any]:
    """What an agent makes of what a broker sends."""
    told = named.name(environment)
    return environment if told is None else read.environment(told)


def test_the_second_job_names_what_both_have(tmp_path: Path) -> None:
    named, read = Named(str(tmp_path)), Read()
    assert named.name(USUAL) is None
    assert os.listdir(tmp_path) == []
    told = named.name(dict(USUAL))
    assert told is not None
    assert told["own"] == {}
    assert os.listdir(tmp_path) == [os.path.basename(told["base"])]
    assert os.stat(told["base"]).st_mode & 0o777 == 0o600
    assert read.environment(told) == USUAL
    # What has been read is not read again.
    os.unlink(told["base"])
    assert read.environment(told) == USUAL


def test_a_variable_of_its_own_is_sent_along(tmp_path: Path) -> None:
    named, read = Named(str(tmp_path)), Read()
    copies = [{**USUAL, "FLUX_JOB_CC": str(number), "GONE": None} for number in range(20)]
    assert [_sent(named, copy, read) for copy in copies] == copies
    assert [list(_sent(named, copy, read)) for copy in copies] == [list(copy) for copy in copies]
    assert len(os.listdir(tmp_path)) == 1
    told = named.name(copies[7])
    assert told is not None
    assert told["own"] == {"FLUX_JOB_CC": "7"}


def test_users_who_submit_in_turns_have_a_file_each(tmp_path: Path) -> None:
    named, read = Named(str(tmp_path)), Read()
    users = [{**USUAL, "USER": name, name: "1"} for name in ("ann", "bob", "eve")]
    for _ in range(5):
        assert [_sent(named, user, read) for user in users] == users
    assert len(os.listdir(tmp_path)) == 3
    named.clear()
    assert os.listdir(tmp_path) == []


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from([f"V{number}" for number in range(20)]), st.none() | st.text(max_size=3), min_size=14
        ),
        max_size=12,
    )
)
def test_whatever_comes_one_after_another_arrives(tmp_path_factory: Any, found: list[dict[str, Any]]) -> None:
    named, read = Named(str(tmp_path_factory.mktemp("rundir"))), Read()
    assert [_sent(named, environment, read) for environment in found] == found


def test_few_variables_are_sent_as_they_are(tmp_path: Path) -> None:
    named = Named(str(tmp_path))
    assert [named.name({"PATH": "/bin"}) for _ in range(3)] == [None] * 3
    assert os.listdir(tmp_path) == []


def test_files_are_bounded_and_so_is_what_an_agent_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_FILES", 3)
    monkeypatch.setattr(environments, "_REMEMBERED", 2)
    named, read = Named(str(tmp_path)), Read()
    for number in range(6):
        environment = {**USUAL, f"OWN_{number}": "1"}
        assert [_sent(named, environment, read) for _ in range(3)] == [environment] * 3
    assert len(os.listdir(tmp_path)) == 3
    assert len(read._known) == 2


def test_without_room_for_a_file_they_are_sent_as_they_are(tmp_path: Path) -> None:
    named = Named(str(tmp_path / "not there"))
    assert [named.name(USUAL) for _ in range(3)] == [None] * 3


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    named = Named(str(tmp_path))
    named.name(USUAL)
    told = named.name(USUAL)
    assert told is not None
    named.clear()
    with pytest.raises(FileNotFoundError):
        Read().environment(told)
