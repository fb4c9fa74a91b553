"""Jobs' private folders: empty for each job, gone after it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Event

import pytest

from headrace.engine.shell import tmpdir
from headrace.engine.shell.tmpdir import Folders
from waiting import PATIENCE


def test_a_folder_is_gone_after_its_job_whether_it_was_used_or_not(tmp_path: Path) -> None:
    folders = Folders()
    for name, used in (("one", False), ("two", True), ("three", False)):
        path = tmp_path / name
        folders.take(str(path))
        assert os.listdir(path) == []
        assert path.stat().st_mode & 0o777 == 0o700
        if used:
            (path / "file").touch()
        folders.give_back(str(path))
        assert not path.exists()
    folders.remove_all()
    tmpdir.wait_for_removals()
    assert os.listdir(tmp_path) == []


def test_nobody_waits_for_the_removal_of_what_a_job_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on, remove_tree = Event(), tmpdir._remove_tree

    def remove_later(path: str) -> None:
        assert may_go_on.wait(PATIENCE)
        remove_tree(path)

    monkeypatch.setattr(tmpdir, "_remove_tree", remove_later)
    folders = Folders()
    for _ in range(2):
        # The same job twice: it was queued again.
        folders.take(str(tmp_path / "job"))
        assert os.listdir(tmp_path / "job") == []
        (tmp_path / "job" / "file").touch()
        folders.give_back(str(tmp_path / "job"))
    assert len(os.listdir(tmp_path)) == 2
    may_go_on.set()
    tmpdir.wait_for_removals()
    assert os.listdir(tmp_path) == []


def test_a_tree_goes_however_deep_and_wide_it_is_and_nothing_behind_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    folders, job = Folders(), tmp_path / "job"
    folders.take(str(job))
    for name in ("link", "dangling"):
        (job / name).symlink_to(outside if name == "link" else tmp_path / "nowhere")
    for number in range(300):
        (job / f"file-{number}").touch()
        (job / f"folder-{number}").mkdir()
        (job / f"folder-{number}" / "file").touch()
    os.mkfifo(job / "folder-0" / "pipe")
    # Deeper than a path can be long, and than Python calls itself.
    here = os.open(job, os.O_RDONLY)
    for _ in range(5000):
        os.mkdir("d", dir_fd=here)
        os.symlink(outside, "deep-link", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    folders.give_back(str(job))
    tmpdir.wait_for_removals()
    assert os.listdir(tmp_path) == ["outside"] and os.listdir(outside) == ["file"]


@pytest.mark.parametrize("spare", [False, True])
def test_what_a_killed_agent_has_left_of_the_job_is_gone(tmp_path: Path, spare: bool) -> None:
    folders = Folders()
    if spare:
        folders.take(str(tmp_path / "before"))
        folders.give_back(str(tmp_path / "before"))
    (tmp_path / "job" / "of").mkdir(parents=True)
    (tmp_path / "job" / "file").touch()
    folders.take(str(tmp_path / "job"))
    tmpdir.wait_for_removals()
    assert os.listdir(tmp_path) == ["job"]
    assert os.listdir(tmp_path / "job") == []
    assert (tmp_path / "job").stat().st_mode & 0o777 == 0o700


def test_the_folders_of_two_agents_do_not_meet(tmp_path: Path) -> None:
    first, second = Folders(), Folders()
    for name, folders in (("a", first), ("b", second)):
        folders.take(str(tmp_path / name))
    for name, folders in (("a", first), ("b", second)):
        folders.give_back(str(tmp_path / name))
    first.take(str(tmp_path / "c"))
    second.take(str(tmp_path / "d"))
    assert sorted(os.listdir(tmp_path)) == ["c", "d"]


def test_the_next_job_finds_nothing_in_a_folder_that_was_handed_on(tmp_path: Path) -> None:
    folders = Folders()
    folders.take(str(tmp_path / "0"))
    for number in range(200):
        path, following = tmp_path / str(number), tmp_path / str(number + 1)
        assert os.listdir(path) == []
        if number % 3 == 0:
            # At any distance from the last change, which is what tells an untouched folder.
            (path / "file").touch()
        if number % 5 == 0:
            path.chmod(0o755)
        if number % 7 == 0:
            time.sleep(0.01)
        folders.give_back(str(path))
        folders.take(str(following))
        assert not path.exists()
        assert following.stat().st_mode & 0o777 == 0o700
    folders.give_back(str(tmp_path / "200"))
    folders.remove_all()
    tmpdir.wait_for_removals()
    assert os.listdir(tmp_path) == []
