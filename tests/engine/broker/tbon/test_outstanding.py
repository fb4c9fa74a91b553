"""Requests on a link: they leave when answered or when their sender goes, and what is left is told at its end."""

from __future__ import annotations

import errno
import sys

from headrace.engine.broker.tbon.outstanding import Outstanding, disconnects, sender_of
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message


def asked(
    topic: str, sender: bytes, tag: int = 1, nodeid: int = m.NODEID_ANY, flags: int = 0, rolemask: int = m.ROLE_OWNER
) -> Message:
    msg = m.request(topic, None, nodeid, tag, flags, 7, rolemask)
    msg.routes = [sender, b"hop"]
    return msg


def on_link(*requests: Message) -> Outstanding:
    link = Outstanding()
    for msg in requests:
        link.passed(msg, sender_of(msg))
    return link


def test_an_answer_ends_a_request_and_only_its_own():
    one, other = asked("kvs.lookup", b"a"), asked("kvs.lookup", b"b")
    link = on_link(one, other)
    link.answered(m.response(one, {}), b"a")
    assert link.take() == [other]


def test_a_stream_ends_with_an_error_not_with_a_response():
    watch = asked("kvs-watch.lookup", b"a", flags=m.FLAG_STREAMING)
    link = on_link(watch)
    link.answered(m.response(watch, {}), b"a")
    assert len(link) == 1
    link.answered(m.error_response(watch, errno.ENODATA), b"a")
    assert len(link) == 0


def test_a_disconnect_takes_all_of_its_sender_along():
    link = on_link(asked("kvs.lookup", b"a"), asked("job-info.lookup", b"a", 2), asked("kvs.lookup", b"b"))
    link.passed(asked("kvs.disconnect", b"a", m.MATCHTAG_NONE), b"a")
    assert [sender_of(msg) for msg in link.take()] == [b"b"]


def test_what_wants_no_answer_is_not_kept():
    assert on_link(asked("log.append", b"a", m.MATCHTAG_NONE)).take() == []


def test_what_was_taken_is_gone():
    link = on_link(asked("kvs.lookup", b"a"))
    assert len(link.take()) == 1
    assert link.take() == []


def test_each_service_hears_once_of_each_sender_on_the_way_that_its_requests_went():
    notes = list(
        disconnects(
            [
                asked("kvs-watch.lookup", b"a", 1),
                asked("kvs-watch.lookup", b"a", 2, rolemask=m.ROLE_USER),
                asked("kvs-watch.lookup", b"b", 1, rolemask=m.ROLE_USER),
                asked("rexec.exec", b"a", 3, nodeid=4),
                asked("overlay.health", b"a", 4, nodeid=2, flags=m.FLAG_UPSTREAM),
                asked("", b"a", 5),
            ]
        )
    )
    assert [(note.topic, note.routes, note.nodeid, note.rolemask) for note in notes] == [
        ("kvs-watch.disconnect", [b"a", b"hop"], m.NODEID_ANY, m.ROLE_OWNER),
        ("kvs-watch.disconnect", [b"b", b"hop"], m.NODEID_ANY, m.ROLE_USER),
        ("rexec.disconnect", [b"a", b"hop"], 4, m.ROLE_OWNER),
        ("overlay.disconnect", [b"a", b"hop"], 2, m.ROLE_OWNER),
    ]
    assert [bool(note.flags & m.FLAG_UPSTREAM) for note in notes] == [False, False, False, True]
    assert all(note.noresponse and note.userid == 7 for note in notes)


def test_a_link_over_which_thousands_were_answered_keeps_no_room_for_them():
    requests = [asked("sched.alloc", b"a", tag) for tag in range(1, 60_002)]
    link = on_link(*requests)
    (table,) = link._senders.values()
    full = sys.getsizeof(table)
    for msg in requests[1:]:
        link.answered(m.response(msg, {}), b"a")
    assert sys.getsizeof(table) < full / 1000
    assert link.take() == [requests[0]]
