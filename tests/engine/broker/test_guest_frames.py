"""Frames of guests: the ones that are refused go by without being kept, and their senders hear why."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.broker.answers import RpcError
from headrace.engine.broker.guest_frames import GuestFrames
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message, MessageError

MOST = 10_000


class Guest:
    def __init__(self) -> None:
        self.refused: list[tuple[str, int, int]] = []
        self.taken: list[tuple[str, int]] = []
        self.most_held = 0
        self.frames = GuestFrames(1 << 20, self._reserve, self._refuse)

    def _reserve(self, size: int) -> None:
        if size > MOST:
            raise RpcError(errno.E2BIG, "too big")

    def _refuse(self, msg: Message, error: RpcError) -> None:
        assert msg.payload is None
        self.refused.append((msg.topic, msg.matchtag, error.errnum))

    def sends(self, data: bytes) -> None:
        self.frames.feed(data)
        self.taken += [(msg.topic, msg.matchtag) for msg in self.frames]
        self.most_held = max(self.most_held, self.frames.held)


def request(tag: int, size: int) -> bytes:
    msg = m.request("box.ask", None, matchtag=tag, payload=bytes(size))
    msg.routes = [b"route"]
    return m.frame(msg)


@given(st.lists(st.sampled_from([0, 10, 3000, 9000, 11_000, 60_000]), max_size=8), st.integers(8, 7000))
def test_each_message_is_taken_or_refused_wherever_its_bytes_are_cut(sizes, piece):
    guest = Guest()
    stream = b"".join(request(tag + 1, size) for tag, size in enumerate(sizes))
    for at in range(0, len(stream), piece):
        guest.sends(stream[at : at + piece])
    assert guest.taken == [("box.ask", tag + 1) for tag, size in enumerate(sizes) if size < MOST]
    assert guest.refused == [("box.ask", tag + 1, errno.E2BIG) for tag, size in enumerate(sizes) if size > MOST]
    assert guest.most_held <= MOST + 8
    assert guest.frames.held == 0


def test_the_whole_size_is_held_from_the_beginning_of_a_message_to_its_end():
    guest = Guest()
    frame = request(1, 9000)
    guest.sends(frame[:8])
    assert guest.frames.held == len(frame) - 8
    guest.sends(frame[8:])
    assert guest.frames.held == 0


def test_a_refused_frame_that_is_no_message_is_an_error():
    guest = Guest()
    with pytest.raises(MessageError):
        guest.sends(m.FRAME_MAGIC + (50_000).to_bytes(4, "big") + b"\1")
        guest.sends(bytes(50_000))
