"""Frames between broker and agent: whatever is sent arrives, however the stream is cut."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.agent.protocol import Reader, frame

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OPS = st.lists(st.dictionaries(st.text(max_size=8), VALUES, max_size=4), max_size=4)


@given(batches=st.lists(OPS, max_size=4), data=st.data())
def test_operations_arrive_in_order_however_the_stream_is_cut(batches, data) -> None:
    stream = b"".join(frame(ops) for ops in batches)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader, got = Reader(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)]):
        got += reader.feed(memoryview(stream)[begin:end])
    assert got == [op for ops in batches for op in ops]


def test_a_frame_that_is_no_list_of_operations_breaks_the_stream() -> None:
    for body in (b"\xc1", msgspec.msgpack.encode({"op": "start"}), msgspec.msgpack.encode([1])):
        with pytest.raises(msgspec.DecodeError):
            list(Reader().feed(struct.pack("<I", len(body)) + body))
