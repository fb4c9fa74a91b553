"""Messages: round trips of every part, and a decoder that answers garbage with its own error only."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec import message as m
from headrace.formats.spec.message import Deframer, Message, MessageError

WORD = st.integers(0, 0xFFFFFFFF)
TOPICS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=40)
MESSAGES = st.builds(
    Message,
    st.sampled_from([m.REQUEST, m.RESPONSE, m.EVENT, m.CONTROL]),
    TOPICS,
    st.none(),
    st.sampled_from([0, m.FLAG_ROUTE, m.FLAG_ROUTE | m.FLAG_STREAMING, m.FLAG_PRIVATE, m.FLAG_NORESPONSE]),
    WORD,
    WORD,
    WORD,
    WORD,
    st.just(None),
    st.one_of(st.none(), st.binary(max_size=600)),
)


def fields(msg: Message) -> tuple:
    flags = msg.flags & ~(m.FLAG_TOPIC | m.FLAG_PAYLOAD)
    return (
        *(msg.type, msg.topic, flags, msg.userid, msg.rolemask, msg.aux1, msg.aux2),
        *(tuple(msg.routes), msg.payload),
    )


@given(MESSAGES, st.lists(st.binary(min_size=1, max_size=300), max_size=5))
def test_a_message_survives_parts_and_frames(msg, routes):
    if msg.flags & m.FLAG_ROUTE:
        msg.routes = routes
    assert fields(m.decode_parts(m.encode_parts(msg))) == fields(msg)
    deframer = Deframer()
    deframer.feed(m.frame(msg) * 2)
    assert [fields(got) for got in deframer] == [fields(msg)] * 2
    assert deframer.pending == 0


@given(st.lists(MESSAGES, max_size=4), st.integers(1, 50))
def test_frames_may_arrive_in_any_pieces(messages, size):
    stream = b"".join(m.frame(msg) for msg in messages)
    deframer, got = Deframer(), []
    for start in range(0, len(stream), size):
        deframer.feed(stream[start : start + size])
        got += [fields(msg) for msg in deframer]
    assert got == [fields(msg) for msg in messages]


def test_the_recorded_frame_layout():
    msg = m.request("a.b", {"x": 1}, matchtag=7, userid=0, rolemask=1)
    assert m.frame(msg) == (
        b"\x12\x00\xee\xff"
        + (1 + 4 + 9 + 21).to_bytes(4, "big")
        + b"\0"
        + b"\x03a.b"
        + b'\x08{"x":1}\0'
        + b"\x14\x8e\x01\x01\x0b\0\0\0\0\0\0\0\1\xff\xff\xff\xff\0\0\0\7"
    )


def test_a_response_echoes_topic_matchtag_and_routes():
    msg = m.request("a.b", None, matchtag=7)
    msg.routes = [b"client", b"broker"]
    reply = m.error_response(msg, 2, "no such thing")
    assert (reply.topic, reply.matchtag, reply.errnum, reply.text) == ("a.b", 7, 2, "no such thing")
    assert reply.routes == [b"client", b"broker"]


@pytest.mark.parametrize("body", [b"[]\0", b"3\0", b'"x"\0', b"{\0", b"\xff\xfe\0", b'{"a":\0'])
def test_a_body_that_is_no_object_is_refused_when_it_is_read(body):
    with pytest.raises(MessageError):
        _ = Message(m.REQUEST, "t", payload=body).obj


def test_bytes_that_were_made_of_an_object_can_be_forgotten_and_made_again():
    msg = m.request("a.b", {"k": 1})
    sent = m.frame(msg)
    msg.forget_payload()
    assert msg._payload is None
    assert m.frame(msg) == sent
    raw = m.request("a.b", payload=b"\1\2")
    raw.forget_payload()
    assert raw.payload == b"\1\2"


def test_a_message_that_was_sent_needs_no_body_for_its_way_back():
    msg = m.request("a.b", {"k": 1}, matchtag=3)
    msg.forget_body()
    assert (msg.has_payload, m.error_response(msg, 5).matchtag) == (False, 3)


def test_mutated_frames_give_messages_or_message_errors():
    dice = random.Random(20)
    good = m.frame(m.request("job-manager.list", {"max_entries": 5, "attrs": ["id"]}, matchtag=3))
    refused = 0
    for _ in range(20_000):
        data = bytearray(good)
        for _ in range(dice.randrange(1, 6)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        if dice.random() < 0.3:
            del data[dice.randrange(len(data)) :]
        deframer = Deframer()
        deframer.feed(bytes(data))
        try:
            for msg in deframer:
                _ = msg.obj
        except MessageError:
            refused += 1
    assert refused > 1000


def test_requests_that_wait_share_what_their_ways_back_have_in_common():
    first, other, foreign = (
        m.decode_parts(m.encode_parts(Message(m.REQUEST, topic, {"id": tag}, m.FLAG_ROUTE, 4242, 1, 700, tag, [b"a"])))
        for topic, tag in (("sched.alloc", 1001), ("sched.alloc", 1002), ("sched.free", 1003))
    )
    for msg in (other, foreign):
        msg.keep_way_back(first)
        assert not msg.has_payload
    assert other.routes is first.routes and other.topic is first.topic and other.userid is first.userid
    assert (foreign.topic, foreign.routes, foreign.aux2) == ("sched.free", [b"a"], 1003)
    reply = m.response(other, {"type": 0})
    assert (reply.topic, reply.matchtag, reply.routes, reply.userid) == ("sched.alloc", 1002, [b"a"], 4242)
    # A response takes its own way back, and leaves that of the request.
    reply.routes.pop()
    assert first.routes == [b"a"]
