"""The folders that `flux start` makes before there are brokers, and that none is left when it refuses to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.broker.launch.options import LaunchError, LaunchOptions, make_rundir


def refusal(**attrs: str) -> str:
    with pytest.raises(LaunchError) as caught:
        make_rundir(LaunchOptions(attrs=attrs))
    return str(caught.value)


@pytest.mark.parametrize("attribute", ["rundir", "statedir"])
def test_a_folder_whose_parent_is_missing_is_refused_and_not_made(attribute: str, tmp_path: Path) -> None:
    wanted = tmp_path / "missing" / "x"
    assert refusal(**{attribute: str(wanted)}) == f"{attribute} {wanted}: there is no folder {wanted.parent}"
    assert not os.listdir(tmp_path)


def test_where_no_folder_can_be_made_the_place_itself_is_not_said_to_be_missing() -> None:
    assert refusal(statedir="/proc/nope") == "statedir /proc/nope: no folder can be made in /proc"


@pytest.mark.parametrize("attribute", ["rundir", "statedir"])
def test_a_file_is_not_taken_for_a_folder(attribute: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refusal(**{attribute: str(tmp_path / "file")}) == f"{attribute} {tmp_path}/file: Not a directory"


def test_a_new_statedir_goes_when_there_can_be_no_rundir(tmp_path: Path) -> None:
    refusal(statedir=str(tmp_path / "state"), rundir=str(tmp_path / "missing" / "x"))
    assert not os.listdir(tmp_path)


def test_an_old_statedir_stays_when_there_can_be_no_rundir(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    refusal(statedir=str(tmp_path / "state"), rundir=str(tmp_path / "missing" / "x"))
    assert os.listdir(tmp_path) == ["state"]


def test_a_run_directory_is_made_where_it_is_asked_for_or_in_tmpdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for cleanup in ("1", "0"):
        options = LaunchOptions(attrs={"rundir": f"{tmp_path}/run"})
        assert make_rundir(options) == f"{tmp_path}/run"
        # the second time it was there before
        assert options.attrs["rundir-cleanup"] == cleanup
    made = Path(make_rundir(LaunchOptions()))
    assert made.parent == tmp_path
    assert made.stat().st_mode & 0o777 == 0o700


def test_guests_whose_jobs_run_as_themselves_can_pass_a_new_run_directory(tmp_path: Path) -> None:
    modes = {}
    for submit in ("refuse", "as-owner", "as-user"):
        for attrs in ({"rundir": f"{tmp_path}/{submit}"}, {"rundir": "/tmp"}):
            config = {"headrace": {"guests": {"submit": submit}}}
            made = Path(make_rundir(LaunchOptions(attrs=attrs, config=config)))
            modes[submit, attrs["rundir"] == "/tmp"] = made.stat().st_mode & 0o777
            made.rmdir()
    assert modes == {
        (submit, there): 0o711 if submit == "as-user" else 0o700
        for submit in ("refuse", "as-owner", "as-user")
        for there in (False, True)
    }
