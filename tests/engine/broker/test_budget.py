"""What guests are charged for: nothing is left when their requests have ended, and the limits hold until then."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.broker.answers import RpcError
from headrace.engine.broker.budget import DEFAULTS, Account, Budget, cost
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

ALICE, BOB = 1000, 1001


class World:
    """A budget with a clock of its own, and what it has told the log."""

    def __init__(self, **limits: int) -> None:
        self.now = 0.0
        self.told: list[str] = []
        self.budget = Budget(lambda _level, text: self.told.append(text), lambda: self.now)
        limits = {name.replace("_", "-"): value for name, value in limits.items()}
        self.budget.configure({"access": {"limits": limits}})


def asked(
    userid: int = ALICE,
    tag: int = 1,
    size: int = 0,
    streaming: bool = False,
    sender: bytes = b"a",
    topic: str = "kvs.lookup",
    nodeid: int = m.NODEID_ANY,
) -> Message:
    flags = m.FLAG_STREAMING if streaming else 0
    msg = m.request(topic, None, nodeid, tag, flags, userid, m.ROLE_USER, bytes(size) if size else None)
    msg.routes = [sender]
    return msg


def refusal(call: Any, *args: Any) -> tuple[int, str]:
    with pytest.raises(RpcError) as raised:
        call(*args)
    return raised.value.errnum, raised.value.text


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "answer", "stream", "end", "leave", "subscribe", "unsubscribe", "input", "output"]),
        st.integers(0, 1),
        st.sampled_from([ALICE, BOB]),
        st.integers(1, 3),
        st.integers(0, 40_000),
    ),
    max_size=60,
)


@given(_STEPS)
def test_charges_return_to_zero_and_never_pass_a_limit(steps):
    world = World(bytes=100_000, all_bytes=150_000, streams=2, subscriptions=2)
    budget = world.budget
    links = [Account(budget), Account(budget)]
    for what, link, userid, tag, size in steps:
        account = links[link]
        sender = b"%d" % userid
        request = asked(userid, tag, size, what in ("stream", "end"), sender)
        try:
            if what in ("open", "stream"):
                account.open(request)
            elif what == "answer":
                account.answered(m.response(request))
            elif what == "end":
                account.answered(m.error_response(request, errno.ENODATA))
            elif what == "leave":
                account.open(asked(userid, m.MATCHTAG_NONE, 0, False, sender, "kvs.disconnect"))
            elif what == "subscribe":
                account.subscribe(userid, f"topic{tag}")
            elif what == "unsubscribe":
                account.unsubscribe(f"topic{tag}")
            else:
                account.charge(userid, what, size)
        except RpcError:
            pass
        for one in (ALICE, BOB):
            for name in ("bytes", "streams", "subscriptions"):
                assert 0 <= budget.used(one, name) <= budget.limits[name]
        assert budget.all_bytes == sum(budget.used(one, "bytes") for one in (ALICE, BOB)) <= budget.limits["all-bytes"]
    for account in links:
        account.close()
    assert not budget._used and not budget.all_bytes


def test_many_guests_hold_no_more_than_all_may_together():
    world = World(bytes=100_000, all_bytes=150_000)
    account = Account(world.budget)
    account.open(asked(size=40_000))
    text = "all guests together may have 150000 bytes that were not yet delivered or answered (access.limits.all-bytes)"
    assert refusal(account.open, asked(BOB, size=40_000, sender=b"b")) == (errno.EAGAIN, text)
    assert world.told == [f"refused: {text}"]
    assert world.budget.stats()["all-bytes"] == cost(asked(size=40_000))
    account.answered(m.response(asked()))
    account.open(asked(BOB, size=40_000, sender=b"b"))


def test_a_request_is_charged_until_its_response_and_a_stream_until_its_end():
    world = World()
    account = Account(world.budget)
    plain, stream = asked(size=1000), asked(tag=2, streaming=True)
    account.open(plain)
    account.open(stream)
    assert world.budget.used(ALICE, "bytes") == cost(plain) + cost(stream)
    account.answered(m.response(plain, {}))
    account.answered(m.response(stream, {}))
    assert (world.budget.used(ALICE, "bytes"), world.budget.used(ALICE, "streams")) == (cost(stream), 1)
    account.answered(m.error_response(stream, errno.ENODATA))
    assert not world.budget._used


def test_a_disconnect_gives_back_what_its_service_on_its_rank_forgets():
    world = World()
    account = Account(world.budget)
    for tag, (sender, topic, nodeid) in enumerate(
        [(b"a", "kvs.lookup", 0), (b"a", "kvs.lookup", 1), (b"a", "groups.get", 0), (b"b", "kvs.lookup", 0)]
    ):
        account.open(asked(ALICE, tag + 1, 0, True, sender, topic, nodeid))
    account.open(asked(ALICE, m.MATCHTAG_NONE, 0, False, b"a", "kvs.disconnect", 0))
    assert world.budget.used(ALICE, "streams") == 3


def test_a_matchtag_in_use_is_not_charged_twice():
    account = Account(World().budget)
    account.open(asked())
    assert refusal(account.open, asked()) == (errno.EPROTO, "kvs.lookup: matchtag 1 is in use")
    account.open(asked(sender=b"b"))


def test_requests_without_a_matchtag_are_many_and_each_is_given_back():
    world = World()
    account = Account(world.budget)
    first, second = asked(tag=m.MATCHTAG_NONE, size=10), asked(tag=m.MATCHTAG_NONE, size=20)
    # A request with FLAG_NORESPONSE has the matchtag 0 as well, but these want responses.
    first.flags = second.flags = asked().flags
    account.open(first)
    account.open(second)
    assert (len(account), world.budget.used(ALICE, "bytes")) == (2, cost(first) + cost(second))
    account.answered(m.response(first, {}))
    assert world.budget.used(ALICE, "bytes") == cost(second)
    account.close()
    assert not world.budget._used


def test_a_refusal_names_user_and_limit_and_is_logged_once_a_minute():
    world = World(streams=1)
    account = Account(world.budget)
    account.open(asked(streaming=True))
    text = "user 1000 may have 1 open streams (access.limits.streams)"
    for tag in (2, 3):
        assert refusal(account.open, asked(tag=tag, streaming=True)) == (errno.EAGAIN, text)
    account.open(asked(BOB, streaming=True, sender=b"b"))
    assert world.told == [f"refused: {text}"]
    world.now = 61.0
    refusal(account.open, asked(tag=4, streaming=True))
    assert len(world.told) == 2
    assert world.budget.stats()["users"] == {
        "1000": {
            "connections": 0,
            "bytes": cost(asked()),
            "streams": 1,
            "subscriptions": 0,
            "log-bytes": 0,
            "refused": 3,
        },
        "1001": {
            "connections": 0,
            "bytes": cost(asked()),
            "streams": 1,
            "subscriptions": 0,
            "log-bytes": 0,
            "refused": 0,
        },
    }


def test_what_fits_no_budget_is_too_big_and_what_does_not_fit_now_may_fit_again():
    account = Account(World(bytes=100_000).budget)
    assert refusal(account.open, asked(size=60_000))[0] == errno.E2BIG
    account.open(asked(size=40_000))
    assert refusal(account.open, asked(tag=2, size=40_000))[0] == errno.EAGAIN
    account.answered(m.response(asked()))
    account.open(asked(tag=2, size=40_000))


def test_what_a_payload_becomes_when_it_is_decoded_is_known_before():
    small = Message(m.REQUEST, "x.y", payload=b'{"a":[' + b"[]," * 1000 + b"[]]}")
    assert cost(small) > 1000 * 56


def test_large_messages_that_want_no_response_are_refused_as_nothing_counts_them():
    account = Account(World(bytes=160_000).budget)
    account.open(asked(tag=m.MATCHTAG_NONE, size=3_000))
    assert refusal(account.open, asked(tag=m.MATCHTAG_NONE, size=10_000))[0] == errno.E2BIG


def test_a_minute_gives_log_bytes_back():
    world = World(log_bytes=600)
    world.budget.charge_log(ALICE, 600)
    assert refusal(world.budget.charge_log, ALICE, 1)[0] == errno.ENOSPC
    world.budget.charge_log(BOB, 600)
    world.now = 10.0
    world.budget.charge_log(ALICE, 100)
    assert refusal(world.budget.charge_log, ALICE, 1)[0] == errno.ENOSPC
    assert refusal(world.budget.charge_log, ALICE, 601)[0] == errno.E2BIG
    world.now = 100.0
    assert "1001" not in world.budget.stats()["users"]


def test_limits_are_those_of_the_configuration_and_otherwise_the_defaults():
    assert World(streams=3).budget.limits == {**DEFAULTS, "streams": 3}
