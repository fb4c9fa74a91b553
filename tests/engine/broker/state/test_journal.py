"""The journal: what was written is there after a crash, what was torn is not, and a full disk is said in time."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import sqlite3
import tracemalloc
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.broker.state import journal as journal_room
from headrace.engine.broker.state.disk import reserve
from headrace.engine.broker.state.frames import frames
from headrace.engine.broker.state.journal import Journal, JournalError


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


def torn_after(path: Path, whole: bytes, last: bytes, cut: int) -> None:
    """A journal of two batches of which the last was written up to byte `cut`."""
    journal, _ = opened(path)
    journal.append(whole)
    end = journal.size
    journal.append(last)
    journal.close()
    os.truncate(path / "journal.00000000", end + cut)


def test_a_write_torn_at_any_byte_is_cut_off_and_written_over(tmp_path: Path) -> None:
    last = bytes(range(64))
    for cut in range(len(last) + 8):
        folder = tmp_path / str(cut)
        torn_after(folder, b"whole", last, cut)
        journal, found = opened(folder)
        # What is left of a length may be all zeros, as after the end.
        assert (found, journal.torn > 0, journal.damage) == ([b"whole"], cut > 0, "")
        journal.append(b"next")
        journal.close()
        assert read_back(folder) == [b"whole", b"next"]


def test_a_flipped_bit_anywhere_costs_its_frame_and_those_behind_a_head_and_is_told_once(tmp_path: Path) -> None:
    batches = [bytes([65 + number]) * (10 + number) for number in range(4)]
    journal, _ = opened(tmp_path / "good")
    ends = []
    for batch in batches:
        journal.append(batch)
        ends.append(journal.size)
    journal.close()
    good = (tmp_path / "good" / "journal.00000000").read_bytes()
    for place in range(ends[-1]):
        folder = tmp_path / str(place)
        folder.mkdir()
        data = bytearray(good)
        data[place] ^= 1 << place % 8
        (folder / "journal.00000000").write_bytes(bytes(data))
        hit = next(index for index, end in enumerate(ends) if place < end)
        begin = ends[hit - 1] if hit else 0
        is_passed = place - begin >= 12
        left = [*batches[:hit], *(batches[hit + 1 :] if is_passed else [])]
        journal, found = opened(folder)
        assert (found, journal.torn) == (left, 0)
        journal.append(b"next")
        journal.close()
        kept = folder / f"damaged.00000000.{begin}"
        assert f"damaged at byte {begin}" in journal.damage and str(kept) in journal.damage
        assert kept.read_bytes() == bytes(data[begin : ends[hit] if is_passed else ends[-1]])
        journal, found = opened(folder)
        assert (found, journal.damage, journal.torn) == ([*left, b"next"], "", 0)
        journal.close()


def test_damage_before_the_last_file_sets_the_later_ones_aside(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.append(b"one")
    place = journal.size
    journal.append(b"two")
    journal.rotate()
    journal.append(b"three")
    journal.close()
    path = tmp_path / "journal.00000000"
    data = bytearray(path.read_bytes())
    data[place + 9] ^= 1
    path.write_bytes(bytes(data))
    journal, found = opened(tmp_path)
    assert found == [b"one"]
    assert "damaged.00000001" in journal.damage
    journal.append(b"next")
    journal.close()
    assert read_back(tmp_path) == [b"one", b"next"]


def test_a_torn_file_before_an_empty_one_is_no_damage(tmp_path: Path) -> None:
    torn_after(tmp_path, b"one", b"two", 9)
    (tmp_path / "journal.00000001").write_bytes(b"\0" * 1000)
    journal, found = opened(tmp_path)
    assert (found, journal.torn, journal.damage) == ([b"one"], 9, "")
    journal.append(b"next")
    journal.rotate()
    journal.append(b"last")
    journal.close()
    assert read_back(tmp_path) == [b"one", b"next", b"last"]


def test_a_file_that_ends_before_its_end_mark_is_damaged_wherever_it_was_cut(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path / "good")
    ends = [0]
    for batch in (b"one", b"two"):
        journal.append(batch)
        ends.append(journal.size)
    journal.rotate()
    journal.append(b"three")
    journal.close()
    names = ("journal.00000000", "journal.00000001")
    first, second = ((tmp_path / "good" / name).read_bytes() for name in names)
    for size in range(len(first)):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / names[0]).write_bytes(first[:size])
        (folder / names[1]).write_bytes(second)
        journal, found = opened(folder)
        whole = sum(end <= size for end in ends[1:])
        assert found == [b"one", b"two"][:whole]
        assert f"damaged at byte {ends[whole]}" in journal.damage
        assert (folder / "damaged.00000001").read_bytes() == second
        journal.close()


def test_what_a_second_damage_cuts_off_is_kept_beside_that_of_the_first(tmp_path: Path) -> None:
    path, kept = tmp_path / "journal.00000000", []
    for batch in (b"first", b"second", b"third"):
        journal, _ = opened(tmp_path)
        journal.append(batch)
        journal.close()
        data = bytearray(path.read_bytes())
        data[3] ^= 1
        path.write_bytes(bytes(data))
        kept.append(bytes(data))
        journal, found = opened(tmp_path)
        assert found == []
        assert f"damaged.00000000.0{f'.{len(kept) - 1}' if kept[1:] else ''}" in journal.damage
        journal.close()
    assert sorted(file.read_bytes() for file in tmp_path.glob("damaged.*")) == sorted(kept)


MIB = 1 << 20
SIZES = st.one_of(st.integers(1, 40), st.integers(1, 70_000), st.sampled_from([MIB - 1, MIB, MIB + 1, 3 * MIB]))
DAMAGES = st.sampled_from(["flips", "zeros", "inserted", "copy", "cut"])


@settings(max_examples=60)
@given(st.lists(SIZES, min_size=1, max_size=6), st.integers(0, 3), DAMAGES, st.integers(0, 1 << 32))
def test_all_that_can_be_read_is_there_and_all_else_is_kept(
    sizes: list[int], rotate_after: int, damage: str, seed: int
) -> None:
    draw = random.Random(seed)
    with TemporaryDirectory() as name:
        folder = Path(name)
        batches = [draw.randbytes(size - 1) + b"\0" for size in sizes]
        journal, _ = opened(folder)
        ends = []
        for number, batch in enumerate(batches):
            journal.append(batch)
            ends.append((journal.number, journal.size))
            if number + 1 == rotate_after and number + 1 < len(batches):
                journal.rotate()
        journal.close()
        files = sorted(folder.glob("journal.0*"))
        hurt = draw.randrange(len(files))
        good, *later = (file.read_bytes() for file in files[hurt:])
        data, place = bytearray(good), draw.randrange(len(good))
        if damage == "flips":
            for _ in range(draw.randint(1, 5)):
                data[draw.randrange(place, min(place + 50, len(data)))] ^= 1 << draw.randrange(8)
        elif damage == "zeros":
            data[place : place + 4096] = bytes(len(data[place : place + 4096]))
        elif damage == "inserted":
            data[place:place] = draw.randbytes(draw.randint(1, 5000))
        elif damage == "copy":
            data += data[place:]
        else:
            del data[place:]
        files[hurt].write_bytes(data + bytes(draw.choice([0, 10_000])))
        expected, passed, stop, is_whole = readable(
            data,
            good,
            [end for number, end in ends if number == hurt],
            batches[sum(number < hurt for number, _ in ends) :],
        )
        expected = batches[: sum(number < hurt for number, _ in ends)] + expected
        if is_whole and later:
            expected += batches[sum(number <= hurt for number, _ in ends) :]
        journal = Journal(name)
        found = list(journal.replay())
        assert found == expected
        kept = [file.read_bytes() for file in folder.glob("damaged.*")]
        assert all(part in kept for part in passed)
        rest = bytes(data[stop:]).rstrip(b"\0")
        if not is_whole and (rest or later):
            if journal.torn:
                # What is left looks like an unfinished write: less than one frame, and nothing in a later file.
                assert hurt == len(files) - 1 and journal.torn == len(rest)
            else:
                assert any(part.startswith(rest) for part in kept) and all(content in kept for content in later)
        assert bool(journal.damage) == bool(kept)
        journal.append(b"next")
        journal.close()
        journal = Journal(name)
        assert list(journal.replay()) == [*found, b"next"]
        assert not journal.damage
        journal.close()


def readable(
    data: bytes, good: bytes, ends: list[int], batches: list[bytes]
) -> tuple[list[bytes], list[bytes], int, bool]:
    """Of a damaged file: the batches that can be read, the frames that are passed over, where reading stops, and
    whether that is at the file's whole end mark. `ends` are those of the frames in the `good` file.
    """
    found, passed, begin = [], [], 0
    for end, batch in zip(ends, batches, strict=False):
        part = bytes(data[begin:end])
        if part == good[begin:end]:
            found.append(batch)
        elif part[:12] == good[begin : begin + 12] and len(bytes(data[begin:]).rstrip(b"\0")) >= end - begin:
            passed.append(part)
        else:
            return found, passed, begin, False
        begin = end
    return found, passed, begin, len(good) > begin and bytes(data[begin : begin + 13]) == good[begin:]


def test_memory_while_damage_is_looked_at_is_that_of_one_frame(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    for number in range(24):
        journal.append(bytes([number]) * MIB)
    journal.close()
    path = tmp_path / "journal.00000000"
    with open(path, "r+b") as file:
        file.seek(3 * MIB)
        file.write(b"damage")
    journal = Journal(str(tmp_path))
    tracemalloc.start()
    try:
        assert sum(1 for _ in journal.replay()) == 23
        assert tracemalloc.get_traced_memory()[1] < 6 * MIB
    finally:
        tracemalloc.stop()
    journal.close()
    (kept,) = tmp_path.glob("damaged.*")
    assert MIB < kept.stat().st_size < 2 * MIB


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


def full_beyond(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A file system where files grow to `most` bytes."""
    real = os.posix_fallocate

    def limited(fd: int, place: int, length: int) -> None:
        if place + length > most:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd, place, length)

    monkeypatch.setattr(os, "posix_fallocate", limited)


def test_each_active_job_keeps_room_from_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_beyond(monkeypatch, 3 << 20)
    journal, _ = opened(tmp_path)
    taken = 0
    while journal.room(taken + 1, 1000):
        journal.append(b"x" * 1000)
        taken += 1
    assert 600 < taken < 800
    assert (3 << 20) - journal.size >= reserve(taken)
    # Jobs that end give theirs back.
    assert journal.room(taken // 2, 1000)
    # What is large is refused where something small has room.
    assert not journal.room(taken // 2, 4 << 20)
    journal.close()


def test_a_small_disk_is_not_filled_in_advance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = (6 << 20) // 4096
    monkeypatch.setattr(
        os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 1 << 30, blocks, blocks, 0, 0, 0, 0, 255))
    )
    journal, _ = opened(tmp_path)
    assert reserve(0) <= os.path.getsize(tmp_path / "journal.00000000") <= 3 << 20
    journal.close()


def test_space_that_comes_back_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        full_beyond(patch, 1 << 20)
        journal, _ = opened(tmp_path)
        assert not journal.room(1, 1)
    monkeypatch.setattr(journal_room, "_ASK_AGAIN", 0.0)
    assert journal.room(1, 1)
    journal.close()


def test_without_room_for_a_new_file_the_old_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = opened(tmp_path)
    journal.append(b"one")
    with monkeypatch.context() as patch:
        full_beyond(patch, reserve(100) - 1)
        with pytest.raises(OSError, match="No space left on device for another file"):
            journal.rotate(100)
        journal.append(b"two")
        assert os.listdir(tmp_path).count("journal.00000001") == 0
        assert journal.rotate(99) == 1
    assert os.path.getsize(tmp_path / "journal.00000000") < 100, "what it kept has gone to the new one"
    journal.append(b"three")
    journal.close()
    assert read_back(tmp_path) == [b"one", b"two", b"three"]


def test_a_checkpoint_without_room_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = opened(tmp_path)
    for text, number in (("database or disk is full", errno.ENOSPC), ("disk I/O error", errno.EIO)):

        def failing(*_args: object, text: str = text) -> None:
            raise sqlite3.OperationalError(text)

        monkeypatch.setattr(Journal, "_save", failing)
        with pytest.raises(OSError, match=text) as caught:
            journal.checkpoint(0, [], [], [], {})
        assert caught.value.errno == number
    journal.close()


def test_a_disk_that_fails_while_files_change_loses_nothing_then_or_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = opened(tmp_path)
    journal.append(b"one")

    def broken(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(OSError, match="Input/output error"):
            journal.rotate()
    journal.append(b"two")
    journal.rotate()
    journal.append(b"three")
    journal.close()
    assert read_back(tmp_path) == [b"one", b"two", b"three"]


class Forgetful:
    """fdatasync as of a kernel that cannot write: it says so once and counts what it has dropped as written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.safe = path.read_bytes()
        self.fails = False

    def fdatasync(self, _fd: int) -> None:
        if not self.fails:
            self.safe = self.path.read_bytes()
            return
        self.fails = False
        # Places that were kept in advance hold zeros.
        size = self.path.stat().st_size
        self.path.write_bytes(self.safe[:size].ljust(size, b"\0"))
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("rotating", [False, True])
def test_a_failed_sync_leaves_no_hole_before_what_is_written_later(
    rotating: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = opened(tmp_path)
    disk = Forgetful(tmp_path / "journal.00000000")
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    journal.append(b"one")
    journal.sync()
    journal.append(b"two")
    journal.append(b"three")
    disk.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        (journal.rotate if rotating else journal.sync)()
    journal.append(b"four")
    journal.sync()
    assert [one.payload for one in frames(BytesIO(disk.safe))] == [b"one", b"two", b"three", b"four"]
    journal.append(b"five")
    journal.rotate()
    assert [one.payload for one in frames(BytesIO(disk.safe))][4:] == [b"five", b""]
    journal.close()


def test_no_new_file_follows_one_with_the_rest_of_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = opened(tmp_path)
    journal.append(b"one")
    real = os.pwrite

    def torn(fd: int, data: bytes, place: int) -> int:
        real(fd, data[:10], place)
        raise OSError(errno.EIO, "Input/output error")

    def stuck(_fd: int, end: int) -> None:
        if end:
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", torn)
        patch.setattr(os, "ftruncate", stuck)
        with pytest.raises(OSError, match="Input/output error"):
            journal.append(b"two two two")
        with pytest.raises(OSError, match="Input/output error"):
            journal.rotate()
    assert journal.rotate() == 1
    journal.append(b"three")
    journal.close()
    journal, found = opened(tmp_path)
    assert (found, journal.torn, journal.damage) == ([b"one", b"three"], 0, "")
    journal.close()


def checkpointed(folder: Path) -> None:
    """A journal whose first file a checkpoint has replaced, with one batch after it."""
    journal, _ = opened(folder)
    journal.append(b"old")
    number = journal.rotate()
    journal.checkpoint(number, [(7, "12", b"job")], [], [], {})
    journal.append(b"new")
    journal.close()


def emptied_tables(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for table in ("job", "text", "meta"):
            db.execute(f"DROP TABLE {table}")


def forgotten_checkpoint(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM meta")


def other_database(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE other (x)")


def left_beside_its_wal(path: Path) -> None:
    path.unlink()
    path.with_name("jobs.sqlite-wal").write_bytes(b"x")


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path, 0),
        emptied_tables,
        forgotten_checkpoint,
        other_database,
        left_beside_its_wal,
    ],
)
def test_an_emptied_database_is_damage_that_can_be_moved_away(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    checkpointed(tmp_path)
    path = tmp_path / "jobs.sqlite"
    damage(path)
    for _ in range(2):
        text = f"{path} cannot be used: it has nothing, but {tmp_path}/journal.00000001 follows a checkpoint in it; "
        with pytest.raises(JournalError, match=re.escape(text) + "it is damaged .* Jobs as of the last .* are lost"):
            Journal(str(tmp_path))
    for file in tmp_path.glob("jobs.sqlite*"):
        file.unlink()
    journal, found = opened(tmp_path)
    assert (found, list(journal.load().jobs)) == ([b"new"], [])
    assert journal.missing.startswith(f"{path} is missing, and the jobs in it are lost")
    journal.close()
    # It goes on without from now on.
    journal, found = opened(tmp_path)
    assert (found, journal.missing) == ([b"new"], "")
    journal.close()


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("is_removed", [False, True])
def test_an_emptied_journal_is_told(tmp_path: Path, is_checkpointed: bool, is_removed: bool) -> None:
    if is_checkpointed:
        checkpointed(tmp_path)
    else:
        opened(tmp_path)[0].close()
    journal, _ = opened(tmp_path)
    assert journal.missing == "", "what was not written is not missing"
    journal.close()
    (path,) = tmp_path.glob("journal.0*")
    if is_removed:
        path.unlink()
    else:
        os.truncate(path, 0)
    journal, found = opened(tmp_path)
    assert found == []
    told = is_checkpointed or not is_removed
    assert journal.missing == (f"{path} is empty or missing: the job data in it is lost" if told else "")
    journal.close()
    journal, _ = opened(tmp_path)
    assert journal.missing == ""
    journal.close()
