"""Standard input of tasks: from clients, from a file, from the lead shell."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_world import World

from headrace.shell.input import Input


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


def test_input_from_a_file_refuses_the_service(world: World, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("from file\n")
    job = world.start(["sh", "-c", "cat; sleep .2"], 2, input=str(tmp_path / "in"))
    token = world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "data": "x"})
    world.finish(job)
    assert (job.text(rank=0), job.text(rank=1)) == ("from file\n", "from file\n")
    (reply,) = world.replies[token]
    assert reply["errnum"] == 38
    assert reply["text"].startswith("Unknown service method")
    told = {"stream": "stdin", "rank": "0-1", "path": str(tmp_path / "in")}
    assert job.inputs == [("redirect", told)]


def test_a_missing_input_file_ends_the_job_as_terminated(world: World) -> None:
    job = world.run(["cat"], input="/nosuch")
    assert job.status == signal.SIGTERM
    assert job.exceptions[0]["note"] == "error opening input file '/nosuch': No such file or directory"


class Fed:
    """A task's feed that remembers."""

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
        tasks: list[Any] = [SimpleNamespace(rank=2 * nodeid + i, feed=feed) for i, feed in enumerate(feeds[nodeid])]
        shells.append(Input({}, 2, tasks, logs.extend, lambda to, message: shells[to].from_peer(message)))
    sent = [{"stream": "stdin", "rank": "1-2", "data": "ü\n"}, {"stream": "stdin", "rank": "all", "eof": True}]
    for io in sent:
        shells[0].from_client(io, 4)
    given = [[feed and (feed.data, feed.ended) for feed in here] for here in feeds]
    assert given == [[(b"", True), ("ü\n".encode(), True)], [("ü\n".encode(), True), None]]
    assert [(name, context) for _, name, context in logs] == [("data", io) for io in sent]


def test_input_after_the_end_of_all_that_it_is_for_is_a_broken_pipe() -> None:
    logs: list[Any] = []
    given = Input({}, 1, [], logs.extend, lambda _to, _message: None)
    given.from_client({"stream": "stdin", "rank": "0", "eof": True}, 2)
    given.from_client({"stream": "stdin", "rank": "0-1", "data": "x"}, 2)
    with pytest.raises(BrokenPipeError):
        given.from_client({"stream": "stdin", "rank": "0", "data": "x"}, 2)
    given.from_client({"stream": "stdin", "rank": "all", "eof": True}, 2)
    with pytest.raises(BrokenPipeError):
        given.from_client({"stream": "stdin", "rank": "all", "eof": True}, 2)
    assert len(logs) == 3


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
