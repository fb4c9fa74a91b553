"""The environment of commands: which folders come first, and that none comes twice."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.common import command_environment
from headrace.cli.common.command_environment import prepare
from headrace.wire.client.installation import FOLDERS

LISTS = {
    "PYTHONPATH": FOLDERS["python_path"],
    "FLUX_EXEC_PATH": FOLDERS["exec_path"],
    "FLUX_CONNECTOR_PATH": FOLDERS["connector_path"],
    "FLUX_MODULE_PATH": FOLDERS["module_path"],
}


def prepared(**given: str) -> dict[str, str]:
    prepare(given)
    return given


@pytest.mark.parametrize("name", LISTS)
def test_our_folder_stands_between_what_is_prepended_and_what_was_inherited(name: str) -> None:
    front = name if name.startswith("FLUX_") else f"FLUX_{name}"
    ours = LISTS[name]
    assert prepared()[name] == ours
    assert prepared(**{name: "/a:/b"})[name] == f"{ours}:/a:/b"
    assert prepared(**{f"{front}_PREPEND": "/x:/y", name: "/a:/x"})[name] == f"/x:/y:{ours}:/a"


def test_a_view_gives_the_bindings_only_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_environment, "is_in_view", lambda: True)
    for command, bindings in (("run", None), ("python", LISTS["PYTHONPATH"]), ("env", LISTS["PYTHONPATH"])):
        env: dict[str, str] = {}
        prepare(env, command)
        assert env.get("PYTHONPATH") == bindings
        assert env["FLUX_MODULE_PATH"] == LISTS["FLUX_MODULE_PATH"]
    own = {"PYTHONPATH": "/users", "FLUX_PYTHONPATH_PREPEND": "/site"}
    prepare(own, "run")
    assert own["PYTHONPATH"] == "/site:/users"


def test_the_folder_of_connectors_is_called_so() -> None:
    assert prepared()["FLUX_CONNECTOR_PATH"].endswith("/connectors")


@pytest.mark.parametrize(
    ("inherited", "behind"), [(None, ":"), ("", ":"), ("/m", ":/m"), ("/m:", ":/m:"), ("/m::/n", ":/m:/n")]
)
def test_the_systems_manual_pages_stay_in_reach(inherited: str | None, behind: str) -> None:
    given = {} if inherited is None else {"MANPATH": inherited}
    assert prepared(**given)["MANPATH"] == FOLDERS["man_path"] + behind


def test_lists_of_sites_have_each_folder_once() -> None:
    env = prepared(FLUX_RC_EXTRA="/a:/b:/a", FLUX_SHELL_RC_PATH="/c::/c")
    assert (env["FLUX_RC_EXTRA"], env["FLUX_SHELL_RC_PATH"]) == ("/a:/b", "/c")
    assert "FLUX_RC_EXTRA" not in prepared()


@given(st.dictionaries(st.sampled_from([*LISTS, "MANPATH", "FLUX_RC_EXTRA"]), st.text(alphabet="/ab:", max_size=12)))
def test_a_command_within_a_command_has_the_same(inherited: dict[str, str]) -> None:
    once = prepared(**inherited)
    assert prepared(**once) == once


def test_variables_that_are_set_are_shown(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("FLUX_EXEC_PATH", "/e")
    monkeypatch.delenv("FLUX_RC_EXTRA", raising=False)
    command_environment.show()
    shown = capsys.readouterr().out.splitlines()
    assert "FLUX_EXEC_PATH=/e" in shown
    assert f"PATH={os.environ['PATH']}" in shown
    assert not [line for line in shown if line.startswith("FLUX_RC_EXTRA")]
