"""Frames: whole ones come back, an unfinished one is told from a damaged one, and none is taken at another place."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.state.frames import copy_rest, end_of_data, frame, frames, is_unfinished


def file_of(*payloads: bytes) -> bytes:
    data = b""
    for payload in payloads:
        data += frame(payload, len(data))
    return data


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=5), st.integers(0, 100))
def test_frames_come_back_in_order_up_to_the_zeros(payloads: list[bytes], zeros: int) -> None:
    file = BytesIO(file_of(*payloads) + bytes(zeros))
    found = list(frames(file))
    assert [payload for _, payload in found] == payloads
    end = found[-1][0] if found else 0
    assert end == end_of_data(file, 0) == end_of_data(file, end)
    assert is_unfinished(file, end, end)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    file = BytesIO(data)
    for end, payload in frames(file):
        assert len(payload) < end <= len(data)
    assert is_unfinished(file, 0, end_of_data(file, 0)) in (True, False)


def test_nothing_follows_an_end_mark() -> None:
    data = file_of(b"one", b"", b"two")
    (_, one), (end, mark) = frames(BytesIO(data))
    assert (one, mark) == (b"one", b"")
    assert end == len(file_of(b"one", b""))


@given(st.binary(min_size=1, max_size=100), st.binary(min_size=1, max_size=100))
def test_a_copy_of_a_frame_is_none(one: bytes, two: bytes) -> None:
    data = file_of(one, two)
    file = BytesIO(data + data)
    assert [payload for _, payload in frames(file)] == [one, two]
    assert not is_unfinished(file, len(data), end_of_data(file, len(data)))


@given(st.binary(min_size=1, max_size=100), st.data())
def test_what_is_cut_off_anywhere_is_unfinished_and_what_has_its_last_byte_is_not(
    payload: bytes, data: st.DataObject
) -> None:
    whole = file_of(payload + b"\0\0")
    cut = BytesIO(whole[: data.draw(st.integers(0, len(whole) - 1))] + bytes(50))
    assert list(frames(cut)) == [] and is_unfinished(cut, 0, end_of_data(cut, 0))
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    hurt = BytesIO(bytes(changed) + bytes(50))
    assert list(frames(hurt)) == [] and not is_unfinished(hurt, 0, end_of_data(hurt, 0))


def test_the_rest_is_copied_byte_for_byte_also_its_zeros(tmp_path: Path) -> None:
    data = b"x" * 10 + bytes(3 << 20) + b"y" + bytes(5 << 20)
    path = tmp_path / "rest"
    with open(path, "wb") as into:
        copy_rest(BytesIO(data), 4, into)
    assert path.read_bytes() == data[4:]
    assert path.stat().st_blocks * 512 < 4 << 20
