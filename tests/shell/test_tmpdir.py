"""Jobs' private folders: empty for each job, gone after it."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.shell.tmpdir import Folders


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
    assert os.listdir(tmp_path) == []


def test_the_folders_of_two_agents_do_not_meet(tmp_path: Path) -> None:
    first, second = Folders(), Folders()
    for name, folders in (("a", first), ("b", second)):
        folders.take(str(tmp_path / name))
    for name, folders in (("a", first), ("b", second)):
        folders.give_back(str(tmp_path / name))
    first.take(str(tmp_path / "c"))
    second.take(str(tmp_path / "d"))
    assert sorted(os.listdir(tmp_path)) == ["c", "d"]
