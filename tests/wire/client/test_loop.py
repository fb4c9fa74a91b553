"""The handle of `loop://`."""

import errno
import os

import pytest

from headrace.formats.spec.message import (
    EVENT,
    REQUEST,
    ROLE_OWNER,
    ROLE_USER,
    Message,
    error_response,
    request,
    response,
)
from headrace.wire.client.loop import LoopHandle


def test_a_call_is_answered_by_whoever_takes_its_request() -> None:
    with LoopHandle() as handle:
        good, bad = handle.rpc("a.b", {"n": 1}), handle.rpc("a.c")
        assert handle.pump(0)
        first, second = handle.unclaimed(REQUEST)[0]
        assert (first.topic, first.obj, second.topic, second.obj) == ("a.b", {"n": 1}, "a.c", None)
        assert (first.userid, first.rolemask) == (os.getuid(), ROLE_OWNER)
        handle.send(error_response(second, errno.ENOENT, "none here"))
        handle.send(response(first, {"n": 2}))
        assert good.get() == {"n": 2}
        with pytest.raises(FileNotFoundError, match="none here"):
            bad.get()


def test_events_and_senders_come_back_as_they_are() -> None:
    with LoopHandle() as handle:
        handle.subscribe("other")
        handle.publish("tick", {"n": 1})
        handle.send(request("a.b", userid=42, rolemask=ROLE_USER))
        event = handle.next_event()
        assert event is not None
        assert (event.type, event.topic, event.obj) == (EVENT, "tick", {"n": 1})
        (asked,) = handle.unclaimed(REQUEST)[0]
        assert (asked.userid, asked.rolemask) == (42, ROLE_USER)


def test_more_than_the_socket_holds_comes_back() -> None:
    with LoopHandle() as handle:
        handle.send(Message(EVENT, "large", payload=b"x" * (1 << 22)))
        event = handle.next_event(10)
        assert event is not None
        assert event.payload == b"x" * (1 << 22)


def test_a_wait_that_nothing_could_end_is_refused() -> None:
    with LoopHandle() as handle:
        call = handle.rpc("a.b")
        with pytest.raises(OSError, match="nothing was sent") as refused:
            call.get()
        assert refused.value.errno == errno.EDEADLK
        with pytest.raises(TimeoutError):
            call.get(timeout=0)


def test_a_claimed_sender_is_on_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUX_HANDLE_USERID", "7")
    monkeypatch.setenv("FLUX_HANDLE_ROLEMASK", str(ROLE_USER))
    with LoopHandle() as handle:
        handle.send(request("a.b", userid=42, rolemask=ROLE_OWNER))
        handle.pump(0)
        (asked,) = handle.unclaimed(REQUEST)[0]
        assert (asked.userid, asked.rolemask) == (7, ROLE_USER)
