"""The journal: what was written is there after a crash, what was torn is not, and a full disk is said in time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.journal import Journal, JournalError, frames


def opened(folder: Path) -> tuple[Journal, list[bytes]]:
    journal = Journal(str(folder))
    return journal, list(journal.replay())


def read_back(folder: Path) -> list[bytes]:
    journal, found = opened(folder)
    journal.close()
    return found


def test_batches_come_back_in_order(tmp_path: Path) -> None:
    journal, found = opened(tmp_path)
    assert found == []
    for batch in (b"one", b"two" * 1000):
        journal.append(batch)
    journal.close()
    journal, found = opened(tmp_path)
    assert (found, journal.torn) == ([b"one", b"two" * 1000], 0)
    journal.append(b"three")
    journal.close()
    assert read_back(tmp_path) == [b"one", b"two" * 1000, b"three"]


@pytest.mark.parametrize("cut", [1, 7, 8, 12])
def test_a_torn_write_is_cut_off_and_written_over(tmp_path: Path, cut: int) -> None:
    journal, _ = opened(tmp_path)
    journal.append(b"whole")
    end = journal.size
    journal.append(b"torn batch")
    journal.close()
    os.truncate(tmp_path / "journal.00000000", end + cut)
    journal, found = opened(tmp_path)
    assert (found, journal.torn > 0) == ([b"whole"], True)
    journal.append(b"next")
    journal.close()
    assert read_back(tmp_path) == [b"whole", b"next"]


def test_a_flipped_bit_ends_the_journal(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.append(b"good")
    place = journal.size
    journal.append(b"bad one")
    journal.close()
    path = tmp_path / "journal.00000000"
    data = bytearray(path.read_bytes())
    data[place + 10] ^= 1
    path.write_bytes(bytes(data))
    journal, found = opened(tmp_path)
    journal.close()
    assert found == [b"good"]
    assert journal.torn > 0


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    for end, payload in frames(data):
        assert 0 < len(payload) < end <= len(data)


def test_the_folder_belongs_to_one_instance(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    with pytest.raises(JournalError, match="in use by another instance"):
        Journal(str(tmp_path))
    journal.close()


def test_a_checkpoint_replaces_the_files_before_it(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.append(b"old")
    number = journal.rotate()
    journal.append(b"new")
    journal.checkpoint(number, [(7, "12", b"job"), (8, "", b"gone")], [8], [(0, b"text")], {"queues": b"q"})
    journal.close()
    journal, found = opened(tmp_path)
    assert found == [b"new"]
    saved = journal.load()
    assert list(saved.jobs) == [(7, "12", b"job")]
    assert (saved.texts, saved.meta["queues"]) == ([(0, b"text")], b"q")
    journal.close()


def test_a_crash_before_the_checkpoint_keeps_both_files(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.append(b"old")
    journal.rotate()
    journal.append(b"new")
    journal.close()
    assert read_back(tmp_path) == [b"old", b"new"]


def test_a_failed_write_leaves_the_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = opened(tmp_path)
    journal.append(b"one")
    real = os.pwrite

    def short(fd: int, data: bytes, place: int) -> int:
        if len(data) > 10:
            return real(fd, data[:10], place)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", short)
        with pytest.raises(OSError, match="No space left"):
            journal.append(b"two two two")
    journal.append(b"three")
    journal.close()
    assert read_back(tmp_path) == [b"one", b"three"]


def test_a_full_disk_shows_before_running_jobs_need_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = opened(tmp_path)

    def full(fd: int, place: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert journal.room()
    while journal.room():
        journal.append(b"x" * (1 << 18))
    left = os.path.getsize(tmp_path / "journal.00000000") - journal.size
    assert left >= 1 << 19
    journal.close()
