"""Jobs' private folders: empty for each job, gone after it."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.shell import tmpdir


def test_a_folder_is_gone_after_its_job_whether_it_was_used_or_not(tmp_path: Path) -> None:
    for used in (False, True):
        path = tmp_path / "job"
        tmpdir.make(str(path))
        assert os.listdir(path) == []
        assert path.stat().st_mode & 0o777 == 0o700
        if used:
            (path / "of").mkdir()
            (path / "of" / "file").touch()
        tmpdir.remove(str(path))
        assert os.listdir(tmp_path) == []


def test_what_a_killed_agent_has_left_of_the_job_is_gone(tmp_path: Path) -> None:
    (tmp_path / "job" / "of").mkdir(parents=True)
    (tmp_path / "job" / "file").touch()
    tmpdir.make(str(tmp_path / "job"))
    assert os.listdir(tmp_path / "job") == []
    assert (tmp_path / "job").stat().st_mode & 0o777 == 0o700


def test_who_stays_in_the_folder_of_a_job_is_not_in_that_of_the_next(tmp_path: Path) -> None:
    tmpdir.make(str(tmp_path / "first"))
    inside = os.open(tmp_path / "first", os.O_RDONLY)
    try:
        tmpdir.remove(str(tmp_path / "first"))
        tmpdir.make(str(tmp_path / "second"))
        (tmp_path / "second" / "file").touch()
        assert os.listdir(inside) == []
    finally:
        os.close(inside)
