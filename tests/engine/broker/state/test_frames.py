"""Frames: whole ones come back, an unfinished one is told from a damaged one, and none is taken at another place."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.broker.state.frames import copy_part, end_of_data, frame, frames, is_unfinished, void_head


def file_of(*payloads: bytes) -> bytes:
    data = b""
    for payload in payloads:
        data += frame(payload, len(data))
    return data


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=5), st.integers(0, 100))
def test_frames_come_back_in_order_up_to_the_zeros(payloads: list[bytes], zeros: int) -> None:
    file = BytesIO(file_of(*payloads) + bytes(zeros))
    found = list(frames(file))
    assert [one.payload for one in found] == payloads
    end = found[-1].end if found else 0
    assert end == end_of_data(file, 0) == end_of_data(file, end)
    assert is_unfinished(file, end, end)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    file = BytesIO(data)
    for one in frames(file):
        assert one.begin + len(one.payload or b"") < one.end <= len(data)
    assert is_unfinished(file, 0, end_of_data(file, 0)) in (True, False)


def test_nothing_follows_an_end_mark() -> None:
    data = file_of(b"one", b"", b"two")
    one, mark = frames(BytesIO(data))
    assert (one.payload, mark.payload) == (b"one", b"")
    assert mark.end == len(file_of(b"one", b""))


@given(st.binary(min_size=1, max_size=100), st.binary(min_size=1, max_size=100))
def test_a_copy_of_a_frame_is_none(one: bytes, two: bytes) -> None:
    data = file_of(one, two)
    file = BytesIO(data + data)
    assert [found.payload for found in frames(file)] == [one, two]
    assert not is_unfinished(file, len(data), end_of_data(file, len(data)))


@given(st.binary(min_size=1, max_size=100), st.data())
def test_what_is_cut_off_anywhere_is_unfinished_and_what_has_its_last_byte_is_not(
    payload: bytes, data: st.DataObject
) -> None:
    whole = file_of(payload + b"\0\0")
    cut = BytesIO(whole[: data.draw(st.integers(0, len(whole) - 1))] + bytes(50))
    for one in frames(cut):
        assert one.is_damaged and end_of_data(cut, 0) < one.end
    assert is_unfinished(cut, 0, end_of_data(cut, 0))
    changed = bytearray(whole)
    place = data.draw(st.integers(0, len(whole) - 1))
    changed[place] ^= 1 << data.draw(st.integers(0, 7))
    hurt = BytesIO(bytes(changed) + bytes(50))
    # Without its head, nothing is known of a frame.
    assert [(one.end, one.is_damaged) for one in frames(hurt)] == ([(len(whole), True)] if place >= 12 else [])
    assert not is_unfinished(hurt, 0, end_of_data(hurt, 0))


@given(st.binary(min_size=1, max_size=100), st.binary(max_size=9), st.binary(min_size=1, max_size=9))
def test_a_void_frame_is_passed_over_whatever_it_has(payload: bytes, damage: bytes, after: bytes) -> None:
    data = bytearray(file_of(b"one", payload, after))
    begin = len(file_of(b"one"))
    data[begin : begin + 12] = void_head(BytesIO(bytes(data)), begin)
    data[begin + 12 : begin + 12 + min(len(damage), len(payload))] = damage[: len(payload)]
    assert [one.payload for one in frames(BytesIO(bytes(data)))] == [b"one", None, after]
    assert not any(one.is_damaged for one in frames(BytesIO(bytes(data))))


def test_the_rest_is_copied_byte_for_byte_also_its_zeros(tmp_path: Path) -> None:
    data = b"x" * 10 + bytes(3 << 20) + b"y" + bytes(5 << 20)
    path = tmp_path / "rest"
    with open(path, "wb") as into:
        copy_part(BytesIO(data), 4, None, into)
    assert path.read_bytes() == data[4:]
    assert path.stat().st_blocks * 512 < 4 << 20
    with open(path, "wb") as into:
        copy_part(BytesIO(data), 4, 12, into)
    assert path.read_bytes() == data[4:12]
