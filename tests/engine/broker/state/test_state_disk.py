"""What an instance says of a disk that is too full, and of a database that it cannot use."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from headrace.engine.broker.state import disk


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes and files the disk has free: set the entries."""
    room = [1 << 40, 1000]

    def statvfs(_path: object) -> os.statvfs_result:
        blocks = room[0] // 4096
        return os.statvfs_result((4096, 4096, 1 << 30, blocks, blocks, 1000, room[1], room[1], 0, 255))

    monkeypatch.setattr(os, "statvfs", statvfs)
    return room


def test_a_shortage_names_what_there_is_and_what_is_needed(tmp_path: Path, free: list[int]) -> None:
    assert disk.shortage(str(tmp_path)) == ""
    free[0] = disk.NEEDED
    assert disk.shortage(str(tmp_path)) == ""
    free[0] = disk.NEEDED - 4096
    text = disk.shortage(str(tmp_path))
    assert text.startswith("its disk has 1532 KiB free, an instance needs 1536 KiB")
    # What an earlier life of the instance had reserved counts.
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "journal.00000003").write_bytes(b"x" * 4096)
    assert disk.shortage(str(tmp_path)) == ""


def test_a_damaged_database_can_be_moved_away_a_full_disk_cleaned_up(tmp_path: Path, free: list[int]) -> None:
    path = tmp_path / "x.sqlite"
    damaged = sqlite3.DatabaseError("file is not a database")
    advice = f"it is damaged and was left as it is. To start without it: mv {path}* ELSEWHERE. All is lost."
    assert disk.unusable(path, damaged, "All is lost.") == (f"{path} cannot be used: file is not a database; {advice}")
    assert advice in disk.unusable(path, ValueError("record 3"), "All is lost.")
    error = sqlite3.OperationalError("disk I/O error")
    assert disk.unusable(path, error, "-") == f"{path} cannot be used: disk I/O error"
    free[1] = 2
    assert disk.unusable(path, error, "-").endswith("; its disk takes 2 more files: remove some there")
    free[0] = 8192
    assert disk.unusable(path, error, "-").endswith("; its disk has 8 KiB free: make room there")


def test_a_database_without_a_byte_was_emptied(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    assert disk.is_emptied(str(path)) and disk.emptied(str(path), "-") == ""
    path.touch()
    assert disk.emptied(str(path), "All is lost.") == f"{path} was emptied: it has 0 bytes. All is lost."
    path.write_bytes(b"x")
    assert not disk.is_emptied(str(path)) and disk.emptied(str(path), "-") == ""


def test_a_disk_is_full_when_a_page_or_two_are_left(tmp_path: Path, free: list[int]) -> None:
    free[0] = 256 << 10
    assert not disk.full(str(tmp_path))
    free[0] = 8192
    assert disk.full(str(tmp_path))
