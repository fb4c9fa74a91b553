"""The reactor of clients, without a handle."""

from __future__ import annotations

import os

from headrace.wire.client.reactor import Reactor


def test_what_was_ready_before_its_number_was_given_away_is_not_called() -> None:
    reactor = Reactor()
    pipes = [os.pipe(), os.pipe()]
    done: list[str] = []

    def begin_anew(_revents: int) -> None:
        done.append("closed")
        fresh = os.pipe()[0]
        for read, _ in pipes:
            reactor.remove_fd(read)
            os.dup2(fresh, read)
            reactor.add_fd(read, lambda _revents: done.append("called"))

    for read, write in pipes:
        os.write(write, b"x")
        reactor.add_fd(read, begin_anew)
    reactor.step()
    assert done == ["closed"]


def test_a_timer_may_be_as_far_off_as_anybody_likes() -> None:
    reactor = Reactor()
    called: list[str] = []
    reactor.add_timer(float("inf"), lambda: called.append("never"))
    reactor.add_timer(1e7, lambda: called.append("next year"))
    read, write = os.pipe()
    os.write(write, b"x")
    reactor.add_fd(read, lambda _revents: reactor.stop())
    reactor.run()
    assert called == []
