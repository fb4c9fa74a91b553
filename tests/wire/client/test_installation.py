"""Where commands and bindings are found, and the environment that an instance's programs get for them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from headrace.wire.client import installation


def command(folder: Path, mode: int, *names: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch(mode)
    return str(folder)


def test_the_commands_are_those_beside_the_running_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = command(tmp_path / "bin", 0o755, "flux", "headrace")
    monkeypatch.setattr(sys, "argv", [f"{beside}/flux"])
    assert installation.command_folder() == beside


@pytest.mark.parametrize(("mode", "names"), [(0o755, ["flux"]), (0o644, ["flux", "headrace"])])
def test_a_folder_without_both_commands_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, names: list[str]
) -> None:
    # Flux's own `flux` beside a script, for instance.
    monkeypatch.setattr(sys, "argv", [command(tmp_path / "bin", mode, *names) + "/script"])
    monkeypatch.setattr(sys, "executable", command(tmp_path / "python", 0o755, "flux", "headrace") + "/python3")
    assert installation.command_folder() == str(tmp_path / "python")


def test_programs_find_this_installation_first_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = command(tmp_path / "bin", 0o755, "flux", "headrace")
    monkeypatch.setattr(sys, "argv", [f"{own}/flux"])
    given = {"PATH": f"/bin:{own}", "PYTHONPATH": "/mine", "HOME": "/root"}
    made = installation.with_flux(given)
    assert made == {"PATH": f"{own}:/bin", "PYTHONPATH": f"{installation.BINDINGS}:/mine", "HOME": "/root"}
    assert installation.with_flux(made) == made
    assert given["PATH"] == f"/bin:{own}"


def test_the_bindings_folder_has_nothing_but_flux() -> None:
    assert [name for name in os.listdir(installation.BINDINGS) if not name.startswith("__pycache__")] == ["flux"]


def test_in_a_view_the_python_of_users_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_headrace_code", ModuleType("_headrace_code"))
    assert "PYTHONPATH" not in installation.with_flux({})
