"""Logs and the spill file: what was appended is read back, from memory and from files, whatever the disk does."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.modules.job_manager import logs
from headrace.engine.modules.job_manager.logs import KEEP, Log, Spill

line = st.integers(0, 40000).map(lambda length: b"x" * length + b"\n")


@given(st.lists(line, max_size=12), st.integers(1, 100000))
def test_a_reader_gets_every_line_once(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], size: int) -> None:
    log = Log(str(tmp_path_factory.mktemp("log") / "output" / "log"))
    for text in lines:
        log.append(text)
    pieces = []
    offset = 0
    while offset < log.size:
        piece = log.read(offset, size)
        assert piece.endswith(b"\n")
        pieces.append(piece)
        offset += len(piece)
    assert b"".join(pieces) == b"".join(lines) == log.text()


def test_only_the_end_of_a_long_log_stays_in_memory(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "output" / "log"))
    for _ in range(50):
        log.append(b"y" * 4000 + b"\n")
    assert log.size - log.spilled <= KEEP
    assert os.path.getsize(tmp_path / "output" / "log") == log.spilled
    # The folder above may be open to guests.
    assert os.stat(tmp_path / "output").st_mode & 0o777 == 0o700
    assert os.stat(tmp_path / "output" / "log").st_mode & 0o777 == 0o600
    assert Log(str(tmp_path / "output" / "log"), log.spilled).read(0, 5000) == b"y" * 4000 + b"\n"
    log.discard()
    assert not (tmp_path / "output" / "log").exists()


def test_without_room_a_log_stays_in_memory(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("a file where the folder should be")
    log = Log(str(tmp_path / "output" / "log"))
    log.append(b"z" * (KEEP + 1) + b"\n")
    assert log.spilled == 0
    assert log.text() == b"z" * (KEEP + 1) + b"\n"


HEADER = b'{"name":"header"}\n'


def test_what_has_room_nowhere_is_left_out_but_never_what_the_log_begins_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "output").write_text("a file where the folder should be")
    log = Log(str(tmp_path / "output" / "log"))
    much = b"z" * 100_000 + b"\n"
    assert not log.append(HEADER + much * 3)
    assert (log.text(), log.size) == (HEADER, len(HEADER))
    assert [log.append(much) for _ in range(4)] == [True, True, False, False]
    assert log.text() == HEADER + much * 2
    assert log.cut == "File exists"
    log.trim("no room")
    log.append_in_memory(b"more\n")
    assert (log.text(), log.size, log.cut) == (HEADER + b"more\n", len(HEADER) + 5, "no room")
    # Room again.
    monkeypatch.setattr(logs, "_ASK_AGAIN", 0.0)
    (tmp_path / "output").unlink()
    assert log.append(much)
    assert log.spilled == log.size


def test_what_is_in_the_file_stays_when_the_rest_is_given_up(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"))
    log.append(b"y" * KEEP + b"\n")
    log.append(b"z\n")
    log.trim("no room")
    assert log.text() == b"y" * KEEP + b"\n"


def test_blobs_are_found_by_their_place(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path))
    blobs = [b"", b"one", b"t" * 70000, b"h" * 0x1000001]
    places = [spill.put(blob) for blob in blobs]
    assert len(set(places)) == len(places)
    assert [spill.get(place) for place in places] == blobs
    assert list(tmp_path.iterdir()) == []
    spill.close()


def test_blobs_survive_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spill = Spill(str(tmp_path))

    def full(fd: int, data: bytes, place: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        places = [spill.put(f"kept {number}".encode() * 1000) for number in range(100)]
    others = [spill.put(f"written {number}".encode() * 1000) for number in range(100)]
    for number in range(100):
        assert spill.get(places[number]) == f"kept {number}".encode() * 1000
        assert spill.get(others[number]) == f"written {number}".encode() * 1000
    spill.close()


@given(st.lists(st.tuples(st.integers(0, 30_000), st.booleans()), max_size=40))
def test_blobs_are_found_when_others_are_dropped(sizes: list[tuple[int, bool]]) -> None:
    with TemporaryDirectory() as folder:
        spill = Spill(folder)
        kept: dict[int, bytes] = {}
        for number, (size, dropped) in enumerate(sizes):
            blob = bytes([number]) * (size + 1)
            place = spill.put(blob)
            if dropped:
                spill.drop(place)
            else:
                kept[place] = blob
        assert {place: spill.get(place) for place in kept} == kept
        spill.close()
