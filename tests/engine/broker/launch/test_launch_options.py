"""The folders that `flux start` makes before there are brokers, and that none is left when it refuses to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.engine.broker.launch.options import LaunchError, LaunchOptions, make_rundir


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


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, for a folder of another user")
@pytest.mark.parametrize("attribute", ["rundir", "statedir"])
def test_a_folder_of_another_user_is_refused(tmp_path: Path, attribute: str) -> None:
    os.chown(tmp_path, 1234, 1234)
    assert refusal(**{attribute: str(tmp_path)}) == (
        f"{attribute} {tmp_path} is not owned by instance owner: it is user 1234's"
    )
    assert not os.listdir(tmp_path)


def test_guests_whose_jobs_run_as_themselves_can_pass_a_new_run_directory(open_folder: Path) -> None:
    modes = {}
    for submit in ("refuse", "as-owner", "as-user"):
        for attrs in ({"rundir": f"{open_folder}/{submit}"}, {"rundir": "/tmp"}):
            config = {"headrace": {"guests": {"submit": submit}}}
            made = Path(make_rundir(LaunchOptions(attrs=attrs, config=config)))
            modes[submit, attrs["rundir"] == "/tmp"] = made.stat().st_mode & 0o777
            made.rmdir()
    assert modes == {
        (submit, there): 0o711 if submit == "as-user" else 0o700
        for submit in ("refuse", "as-owner", "as-user")
        for there in (False, True)
    }


AS_USER = {"headrace": {"guests": {"submit": "as-user"}}}


@pytest.mark.parametrize("by", ["attribute", "option"])
@pytest.mark.parametrize(
    ("mode", "closed"), [(0o700, True), (0o600, True), (0o744, True), (0o711, False), (0o710, False), (0o1777, False)]
)
def test_one_that_is_there_and_that_they_cannot_pass_is_told_with_the_mode_it_needs(
    open_folder: Path, by: str, mode: int, closed: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    rundir = open_folder / "run"
    rundir.mkdir()
    rundir.chmod(mode)
    attrs, option = ({"rundir": str(rundir)}, "") if by == "attribute" else ({}, str(rundir))
    make_rundir(LaunchOptions(config=AS_USER, attrs=dict(attrs), rundir=option))
    told = (
        f'flux-broker: warning: rundir {rundir}: headrace.guests.submit is "as-user", and jobs of guests will fail: '
        f"{rundir} has mode {mode:04o}, and must be passable for all, such as with {mode | 0o011:04o}\n"
    )
    assert capfd.readouterr().err == (told if closed else "")
    # Other jobs of guests run as the owner, or not at all.
    other = {"headrace": {"guests": {"submit": "as-owner"}}}
    make_rundir(LaunchOptions(config=other, attrs=dict(attrs), rundir=option))
    assert capfd.readouterr().err == ""


def test_so_is_a_folder_above_a_new_one(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    closed = open_folder / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0o700)
    monkeypatch.setenv("TMPDIR", f"{closed}/inner")
    for attrs in {}, {"rundir": f"{closed}/inner/run"}:
        make_rundir(LaunchOptions(config=AS_USER, attrs=dict(attrs)))
        assert f"{closed} has mode 0700, and must be passable for all" in capfd.readouterr().err
