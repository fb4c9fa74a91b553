"""The queue of starts that several processes empty: in order, each once, whatever their size and number."""

from __future__ import annotations

import os

import msgspec
import pytest

from headrace.agent import handout as module
from headrace.agent.handout import Handout


def starts(ids: range, padding: int = 0) -> list[tuple[int, bytes]]:
    return [(id, msgspec.msgpack.encode({"id": id, "padding": "x" * padding})) for id in ids]


def taken(handout: Handout) -> list[int]:
    out = []
    while (op := handout.take()) is not None:
        out.append(op["id"])
    return out


def test_starts_come_in_order_whether_there_is_room_for_all_or_not() -> None:
    handout = Handout()
    assert handout.take() is None
    handout.add(starts(range(3)))
    handout.add(starts(range(3, 3000), 2000))
    assert taken(handout) == list(range(3000))
    assert handout.take() is None


def test_one_that_is_too_large_for_the_queue_keeps_its_turn() -> None:
    handout = Handout()
    handout.add([*starts(range(2)), *starts(range(2, 3), 1_000_000), *starts(range(3, 5))])
    assert taken(handout) == [0, 1, 2, 3, 4]


def test_one_that_sockets_of_this_system_never_take_keeps_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROOM", 0)
    handout = Handout()
    handout.add([*starts(range(2)), *starts(range(2, 3), 30_000), *starts(range(3, 9))])
    assert taken(handout) == list(range(9))


def test_what_is_drained_is_not_taken() -> None:
    handout = Handout()
    handout.add([*starts(range(3)), *starts(range(3, 4), 1_000_000), *starts(range(4, 9))])
    assert handout.take() == {"id": 0, "padding": ""}
    assert list(handout.drain()) == list(range(1, 9))
    assert handout.take() is None
    handout.add(starts(range(9, 10)))
    assert taken(handout) == [9]


def test_processes_take_each_start_once_and_in_order() -> None:
    handout, ids = Handout(), range(2000)
    handout.add(starts(ids, 100))
    ways: list[tuple[int, int]] = []
    for _ in range(3):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            handout.inherited()
            for id in taken(handout):
                os.write(write, b"%d " % id)
            os._exit(0)
        os.close(write)
        ways.append((pid, read))
    lists = [taken(handout)]
    for pid, _ in ways:
        assert os.waitpid(pid, 0)[1] == 0
    for _, read in ways:
        with open(read) as file:
            lists.append([int(word) for word in file.read().split()])
    assert sorted(id for each in lists for id in each) == list(ids)
    assert all(each == sorted(each) for each in lists)
