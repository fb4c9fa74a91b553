"""Standard input of a child: nothing blocks, nothing is lost while somebody reads, and it ends when it shall."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from headrace.engine.process.feed import Feed

MORE_THAN_A_PIPE = b"0123456789" * 30_000


class Loop:
    """Keeps what is watched; the test says when it is writable."""

    def __init__(self) -> None:
        self.writers: dict[int, Callable[[], None]] = {}

    def watch_writable(self, fd: int, on_writable: Callable[[], None]) -> None:
        assert fd not in self.writers
        self.writers[fd] = on_writable

    def unwatch_writable(self, fd: int) -> None:
        del self.writers[fd]


@pytest.fixture
def pipe() -> Iterator[tuple[Loop, Feed, int]]:
    reader, writer = os.pipe()
    loop = Loop()
    feed = Feed(loop, writer)
    yield loop, feed, reader
    feed.close()
    os.close(reader)


def test_what_the_pipe_does_not_take_follows_as_it_is_read(pipe: tuple[Loop, Feed, int]) -> None:
    loop, feed, reader = pipe
    feed.write(MORE_THAN_A_PIPE)
    feed.write(b"last")
    feed.end()
    got = b""
    while loop.writers:
        got += os.read(reader, 1 << 16)
        loop.writers[feed.fd]()
    while data := os.read(reader, 1 << 16):
        got += data
    assert got == MORE_THAN_A_PIPE + b"last"
    assert feed.fd == -1


@pytest.mark.parametrize("how", ["read", "closed", "left"])
def test_who_waits_for_room_hears_once_when_there_is_some_or_never_will_be(how: str) -> None:
    reader, writer = os.pipe()
    loop, heard = Loop(), []
    feed = Feed(loop, writer, lambda: heard.append(feed.backlog))
    feed.write(b"a little")
    assert (heard, feed.backlog) == ([], 0)
    feed.write(MORE_THAN_A_PIPE)
    assert feed.backlog > 0
    if how == "read":
        while loop.writers:
            os.read(reader, 1 << 16)
            loop.writers[feed.fd]()
    elif how == "left":
        os.close(reader)
        loop.writers[feed.fd]()
    feed.close()
    assert (heard, feed.fd, loop.writers) == ([0], -1, {})


def test_an_end_without_data_closes_at_once_and_later_writes_are_dropped(pipe: tuple[Loop, Feed, int]) -> None:
    loop, feed, reader = pipe
    feed.end()
    feed.write(b"too late")
    assert os.read(reader, 10) == b""
    assert (feed.fd, loop.writers) == (-1, {})


def test_a_reader_that_went_away_ends_the_feed(pipe: tuple[Loop, Feed, int]) -> None:
    loop, feed, reader = pipe
    feed.write(MORE_THAN_A_PIPE)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, reader)
    os.close(null)
    loop.writers[feed.fd]()
    assert (feed.fd, loop.writers) == (-1, {})


def test_closing_forgets_what_waits(pipe: tuple[Loop, Feed, int]) -> None:
    loop, feed, reader = pipe
    feed.write(MORE_THAN_A_PIPE)
    feed.close()
    got = 0
    while data := os.read(reader, 1 << 16):
        got += len(data)
    assert got < len(MORE_THAN_A_PIPE)
    assert loop.writers == {}
