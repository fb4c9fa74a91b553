"""Standard input of tasks: from clients, from a file, from the lead shell."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_world import World

from headrace.engine.shell.input import Input


def test_input_reaches_every_task_until_its_end(world: World) -> None:
    job = world.start(["cat"], 2)
    tokens = [
        world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "data": "to all\n"}),
        world.rpc(job, "stdin", {"stream": "stdin", "rank": "1", "data": "to one\n"}),
        world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "eof": True}),
    ]
    world.finish(job)
    assert (job.text(rank=0), job.text(rank=1)) == ("to all\n", "to all\nto one\n")
    assert [world.replies[token][0]["errnum"] for token in tokens] == [0, 0, 0]
    assert [name for name, _ in job.inputs] == ["data"] * 3


def test_more_input_than_a_pipe_holds_arrives_and_never_blocks_other_jobs(world: World) -> None:
    reader = world.start(["sh", "-c", "sleep .3; wc -c"])
    for _ in range(40):
        world.rpc(reader, "stdin", {"stream": "stdin", "rank": "all", "data": "x" * 10_000})
    world.rpc(reader, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
    assert world.run(["true"]).status == 0
    assert not reader.done
    assert world.finish(reader).text().split() == ["400000"]


def test_a_client_hears_when_a_task_that_did_not_read_goes_on_or_ends(world: World, tmp_path: Path) -> None:
    for script in ("while ! test -e go; do sleep .01; done; cat >/dev/null", "while ! test -e go; do sleep .01; done"):
        job = world.start(["sh", "-c", script], cwd=str(tmp_path))
        io = {"stream": "stdin", "rank": "all", "data": "x" * 500_000}
        tokens = []
        for _ in range(5):
            tokens.append(world.rpc(job, "stdin", io))
            later = world.rpc(job, "no such method", {})
            world.pump(lambda later=later: bool(world.replies[later]))  # type: ignore[misc]
        assert [len(world.replies[token]) for token in tokens] == [1, 1, 0, 0, 0]
        (tmp_path / "go").touch()
        world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
        world.finish(job)
        assert [[reply["errnum"] for reply in world.replies[token]] for token in tokens] == [[0]] * 5
        (tmp_path / "go").unlink()


def test_input_from_a_file_refuses_the_service(world: World, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("from file\n")
    job = world.start(["sh", "-c", "cat; sleep .2"], 2, input=str(tmp_path / "in"))
    token = world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "data": "x"})
    world.finish(job)
    assert (job.text(rank=0), job.text(rank=1)) == ("from file\n", "from file\n")
    (reply,) = world.replies[token]
    assert reply["errnum"] == 38
    assert reply["text"].startswith("Unknown service method")
    told = {"stream": "stdin", "rank": "all", "path": str(tmp_path / "in")}
    assert job.inputs == [("redirect", told)]


def test_who_waits_for_the_writer_of_a_fifo_is_the_task_and_nobody_else(world: World, tmp_path: Path) -> None:
    fifo = tmp_path / "a fifo"
    os.mkfifo(fifo)
    job = world.start(["cat"], options={"input": {"stdin": {"type": "file", "path": str(fifo)}}})
    assert world.run(["true"]).status == 0
    fifo.write_text("late\n")
    assert world.finish(job).text() == "late\n"


def test_a_missing_input_file_ends_the_job_before_it_starts(world: World) -> None:
    job = world.run(["cat"], input="/nosuch")
    assert job.status == job.exceptions[0]["status"] == 1 << 8
    assert job.exceptions[0]["note"] == "error opening input file '/nosuch': No such file or directory"


class Fed:
    """A task's feed that remembers."""

    fd = 1
    backlog = 0

    def __init__(self) -> None:
        self.data = b""
        self.ended = False

    def write(self, data: bytes) -> None:
        self.data += data

    def end(self) -> None:
        self.ended = True


def test_the_lead_logs_what_a_client_sent_and_passes_it_on_to_every_node() -> None:
    feeds = [[Fed(), Fed()], [Fed(), None]]
    shells: list[Input] = []
    logs: list[Any] = []
    for nodeid in range(2):
        tasks: list[Any] = [
            SimpleNamespace(rank=2 * nodeid + i, feed=feed, pty=None) for i, feed in enumerate(feeds[nodeid])
        ]
        shells.append(Input({}, 2, tasks, logs.extend, lambda to, message: shells[to].from_peer(message)))
    sent = [{"stream": "stdin", "rank": "1-2", "data": "ü\n"}, {"stream": "stdin", "rank": "all", "eof": True}]
    for io in sent:
        shells[0].from_client(io, 4, lambda: None)
    given = [[feed and (feed.data, feed.ended) for feed in here] for here in feeds]
    assert given == [[(b"", True), ("ü\n".encode(), True)], [("ü\n".encode(), True), None]]
    assert [(name, context) for _, name, context in logs] == [("data", io) for io in sent]


def test_input_after_the_end_of_all_that_it_is_for_is_a_broken_pipe() -> None:
    logs: list[Any] = []
    given = Input({}, 1, [], logs.extend, lambda _to, _message: None)
    given.from_client({"stream": "stdin", "rank": "0", "eof": True}, 2, lambda: None)
    given.from_client({"stream": "stdin", "rank": "0-1", "data": "x"}, 2, lambda: None)
    with pytest.raises(BrokenPipeError):
        given.from_client({"stream": "stdin", "rank": "0", "data": "x"}, 2, lambda: None)
    given.from_client({"stream": "stdin", "rank": "all", "eof": True}, 2, lambda: None)
    with pytest.raises(BrokenPipeError):
        given.from_client({"stream": "stdin", "rank": "all", "eof": True}, 2, lambda: None)
    assert len(logs) == 3


def test_who_sends_more_than_any_task_takes_waits_for_one_that_does() -> None:
    feeds = [Fed(), Fed()]
    tasks: list[Any] = [SimpleNamespace(rank=rank, feed=feed, pty=None) for rank, feed in enumerate(feeds)]
    answers: list[int] = []
    given = Input({}, 1, tasks, lambda _entries: None, lambda _to, _message: None)
    for number in range(3):
        io = {"stream": "stdin", "rank": "all", "data": "x"}
        given.from_client(io, 2, lambda number=number: answers.append(number))  # type: ignore[misc]
        for feed in feeds:
            feed.backlog += 600_000
    assert len(answers) == 2
    feeds[0].backlog = 0
    given.answer()
    assert answers == [0, 1, 2]


class Shells:
    """The input of three nodes with a task each. What shells say to each other is on its way until `deliver`."""

    def __init__(self) -> None:
        self.feeds = [Fed() for _ in range(3)]
        self.on_way: list[tuple[int, int, dict[str, Any]]] = []
        self.answers = 0
        self.shells: list[Input] = []
        for nodeid, feed in enumerate(self.feeds):
            tasks: list[Any] = [SimpleNamespace(rank=nodeid, feed=feed, pty=None)]
            self.shells.append(Input({}, 3, tasks, lambda _entries: None, self._sender(nodeid)))

    def _sender(self, nodeid: int) -> Callable[[int, dict[str, Any]], None]:
        return lambda to, message: self.on_way.append((nodeid, to, message))

    def type(self, size: int) -> None:
        self.shells[0].from_client({"stream": "stdin", "rank": "all", "data": "x" * size}, 3, self._answered)

    def _answered(self) -> None:
        self.answers += 1

    def deliver(self, nodes: tuple[int, ...] = (0, 1, 2)) -> None:
        for sender, to, message in self.on_way[:]:
            if to in nodes and message["kind"] == "stdin":
                self.on_way.remove((sender, to, message))
                self.shells[to].from_peer(message)
        for sender, to, message in self.on_way[:]:
            if message["kind"] == "stdin-taken":
                self.on_way.remove((sender, to, message))
                self.shells[0].peer_took(sender, message["bytes"], message["state"])


def test_who_sends_more_than_the_tasks_of_any_node_take_waits_for_one_that_does() -> None:
    job = Shells()
    for feed in job.feeds:
        feed.backlog = 2 << 20
    job.type(10)
    assert job.answers == 1, "that the others are full is not known yet"
    job.deliver()
    job.type(10)
    assert job.answers == 1
    job.feeds[2].backlog = 0
    job.shells[2].answer()
    job.deliver()
    assert job.answers == 2
    # A task that has ended takes nothing, and is no reason to send on.
    job.feeds[2].fd = -1
    job.type(10)
    job.deliver()
    job.type(10)
    assert job.answers == 3
    job.shells[0].peer_ended(2)
    assert job.answers == 3
    job.feeds[0].fd = job.feeds[1].fd = -1
    job.shells[1].answer()
    job.deliver()
    assert job.answers == 4, "nobody reads any more, and nobody is waited for"


def test_a_node_that_is_behind_with_its_messages_is_waited_for_until_it_is_gone() -> None:
    job = Shells()
    for _ in range(9):
        job.type(250_000)
        job.deliver((0, 1))
    assert job.answers == 4
    job.deliver()
    assert job.answers == 9
    for _ in range(9):
        job.type(250_000)
        job.deliver((0, 2))
    job.shells[0].peer_ended(1)
    job.type(250_000)
    assert job.answers == 19
    assert [to for _, to, message in job.on_way if message["kind"] == "stdin"].count(1) == 9


def test_input_of_several_nodes_waits_for_a_task_that_reads(world: World, tmp_path: Path) -> None:
    script = "while ! test -e go; do sleep .01; done; cat >/dev/null"
    job = world.start(["sh", "-c", script], 2, nodes=[0, 1], cwd=str(tmp_path))
    io = {"stream": "stdin", "rank": "all", "data": "x" * 500_000}
    tokens = []
    while not tokens or world.replies[tokens[-1]]:
        tokens.append(world.rpc(job, "stdin", io))
        # Both shells have taken it, and the lead has heard of it, once their tasks are known.
        later = world.rpc(job, "proctable", {})
        world.pump(lambda later=later: bool(world.replies[later]))  # type: ignore[misc]
    assert 3 <= len(tokens) <= 6
    (tmp_path / "go").touch()
    world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
    world.finish(job)
    assert [[reply["errnum"] for reply in world.replies[token]] for token in tokens] == [[0]] * len(tokens)


@pytest.mark.parametrize(
    ("stdin", "from_clients", "path"),
    [
        (None, True, ""),
        ("file", True, ""),
        ({"type": "service"}, True, ""),
        ({"path": "ignored"}, True, ""),
        ({"type": "file"}, False, ""),
        ({"type": "file", "path": "in-{{id}}-{{bogus}}"}, False, "in-f1-{{bogus}}"),
    ],
)
def test_the_option_says_where_input_comes_from(stdin: Any, from_clients: bool, path: str) -> None:
    given = Input({"input": {"stdin": stdin}}, 1, [], lambda _: None, lambda _to, _message: None)
    assert given.from_clients is from_clients
    assert given.path(lambda tag, rank=None: {"id": "f1"}.get(tag)) == path
