"""Output of the tasks of several nodes: what goes into the log and files, whole lines, labels and limits."""

from __future__ import annotations

import errno
import os
import threading
import tty
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.shell.output import Output, OutputError, parse_size
from headrace.formats.spec import stdio


class Nodes:
    """The shells of two nodes with two tasks each; `entries` is the log that the lead emits."""

    def __init__(self, **options: Any) -> None:
        self.entries: list[Any] = []
        self.lost: list[str] = []
        self.nodes: list[Output] = []
        for nodeid, ranks in enumerate(([0, 1], [2, 3])):
            to_lead = self.nodes[0].from_peer if nodeid else _never
            emit = self.entries.extend if nodeid == 0 else _never
            self.nodes.append(Output(options, nodeid, 4, ranks, _lookup, emit, to_lead, self.lost.append))
        for node in self.nodes:
            node.open()

    def data(self, rank: int, stream: str, data: bytes) -> None:
        self.nodes[rank // 2].data(rank, stream, data)

    def end(self) -> None:
        for rank in range(4):
            for stream in ("stdout", "stderr"):
                self.nodes[rank // 2].eof(rank, stream)
        for node in reversed(self.nodes):
            node.close()

    def written(self) -> dict[tuple[int, str], list[bytes]]:
        """The pieces of each stream of each task in the log."""
        found = defaultdict(list)
        for _, name, context in self.entries:
            content = stdio.decode_data(context) if name == "data" else None
            if content is not None and content.data is not None:
                found[int(content.rank), content.stream].append(content.data)
        return found

    def logs(self) -> list[str]:
        return [context["message"] for _, name, context in self.entries if name == "log"]


def _never(_message: Any) -> None:
    raise AssertionError("nobody is there to take it")


def _lookup(tag: str, rank: int | None = None) -> str | None:
    return {"id": "fA", "taskid": None if rank is None else str(rank)}.get(tag)


pieces = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["stdout", "stderr"]), st.sampled_from([b"a", b"\n", b"\xc6\x92\n", b"\xff"])
    ),
    max_size=40,
)


@given(pieces)
def test_the_log_has_each_tasks_bytes_in_order_and_stdout_in_whole_lines(writes: list[tuple[int, str, bytes]]) -> None:
    nodes = Nodes()
    wrote: dict[tuple[int, str], bytes] = defaultdict(bytes)
    for rank, stream, data in writes:
        nodes.data(rank, stream, data)
        wrote[rank, stream] += data
    nodes.end()
    found = nodes.written()
    assert {key: b"".join(parts) for key, parts in found.items()} == dict(wrote)
    for (_, stream), parts in found.items():
        assert stream == "stderr" or all(part.endswith(b"\n") for part in parts[:-1])
    ends = [entry[2] for entry in nodes.entries if entry[1] == "data" and entry[2].get("eof")]
    assert len(ends) == 8


@given(pieces, st.integers(1, 12))
def test_of_each_stream_the_log_keeps_the_first_bytes_wherever_the_tasks_run(
    writes: list[tuple[int, str, bytes]], limit: int
) -> None:
    whole, cut = Nodes(), Nodes(limit=limit)
    for nodes in (whole, cut):
        for write in writes:
            nodes.data(*write)
        nodes.end()
    for stream in ("stdout", "stderr"):
        first, second = (
            b"".join(
                stdio.decode_data(context).data or b""
                for _, name, context in nodes.entries
                if name == "data" and context["stream"] == stream
            )
            for nodes in (whole, cut)
        )
        assert second == first[:limit]
        told = [text for text in cut.logs() if text.startswith(stream)]
        over = len(first) - limit
        assert told[1:] == ([f"{stream}: {over} of {len(first)} bytes truncated"] if over > 0 else [])


def test_one_file_for_all_has_labelled_lines_of_every_node(tmp_path: Path) -> None:
    path = tmp_path / "out-{{id}}"
    nodes = Nodes(stdout={"type": "file", "path": str(path), "label": True})
    nodes.data(2, "stdout", b"50%\r100%\nnext\nthe ")
    nodes.data(0, "stdout", b"here\n")
    nodes.data(2, "stdout", b"end")
    nodes.data(3, "stderr", b"stderr goes along\n")
    nodes.end()
    text = (tmp_path / "out-fA").read_bytes()
    assert text == b"2: 50%\r100%\n2: next\n0: here\n3: stderr goes along\n2: the end"
    redirects = [(context["stream"], context["rank"]) for _, name, context in nodes.entries if name == "redirect"]
    assert redirects == [("stdout", "[0-3]"), ("stderr", "[0-3]")]
    assert nodes.written() == {}


def test_a_file_of_each_task_is_written_where_the_task_runs(tmp_path: Path) -> None:
    nodes = Nodes(stdout={"type": "file", "path": f"{tmp_path}/{{{{taskid}}}}"}, stderr={"type": "kvs"})
    for rank in range(4):
        nodes.data(rank, "stdout", b"%d\n" % rank)
    nodes.end()
    assert [(tmp_path / str(rank)).read_text() for rank in range(4)] == ["0\n", "1\n", "2\n", "3\n"]


def test_what_a_full_disk_loses_is_told_once() -> None:
    nodes = Nodes(stdout={"type": "file", "path": "/dev/full"}, stderr={"type": "kvs"})
    for rank in (0, 2, 3):
        nodes.data(rank, "stdout", b"lost\n")
    nodes.end()
    assert nodes.logs() == nodes.lost == ["error writing /dev/full: No space left on device: output is lost"]


def test_a_terminal_that_nobody_reads_loses_output_and_holds_up_no_other_job() -> None:
    master, slave = os.openpty()
    path = os.ttyname(slave)
    nodes = Nodes(stdout={"type": "file", "path": path}, stderr={"type": "kvs"})
    for rank in (0, 2):
        nodes.data(rank, "stdout", b"lost\n" * 20_000)
    nodes.end()
    assert nodes.logs() == nodes.lost == [f"error writing {path}: {os.strerror(errno.EAGAIN)}: output is lost"]
    os.close(master)
    os.close(slave)


def test_a_terminal_that_is_read_gets_all_output() -> None:
    master, slave = os.openpty()
    tty.setraw(slave)
    nodes = Nodes(stdout={"type": "file", "path": os.ttyname(slave)}, stderr={"type": "kvs"})
    read = bytearray()

    def reader() -> None:
        while not read.endswith(b"end\n"):
            read.extend(os.read(master, 1 << 16))

    thread = threading.Thread(target=reader, daemon=True)
    thread.start()
    for part in (b"much\n" * 50_000, b"end\n"):
        nodes.data(0, "stdout", part)
    thread.join(60)
    nodes.end()
    assert (bytes(read), nodes.lost) == (b"much\n" * 50_000 + b"end\n", [])
    os.close(master)
    os.close(slave)


def test_what_a_file_system_says_only_when_a_file_is_closed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(stdout={"type": "file", "path": "/dev/null"}, stderr={"type": "kvs"})
    nodes.data(0, "stdout", b"lost\n")

    def close(_fd: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close)
        nodes.end()
    assert nodes.logs() == nodes.lost == ["error writing /dev/null: Disk quota exceeded: output is lost"]


def test_a_fifo_is_refused_since_all_jobs_would_wait_for_its_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    options = {"stdout": {"type": "file", "path": str(tmp_path / "fifo")}}
    entries: list[Any] = []
    output = Output(options, 0, 1, [0], _lookup, entries.extend, _never, _never)
    with pytest.raises(OutputError, match="FIFO"):
        output.open()
    assert [name for _, name, _ in entries] == ["header"]


def test_append_keeps_what_the_file_had(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before\n")
    for mode in ("append", "truncate"):
        nodes = Nodes(mode=mode, stdout={"type": "file", "path": str(tmp_path / "out")})
        nodes.data(0, "stdout", b"now\n")
        nodes.end()
        assert (tmp_path / "out").read_text() == ("before\nnow\n" if mode == "append" else "now\n")


def test_a_line_that_never_ends_is_not_held_for_ever() -> None:
    nodes = Nodes()
    for _ in range(3):
        nodes.data(0, "stdout", b"x" * (1 << 19))
    assert sum(map(len, nodes.written()[0, "stdout"])) == 1 << 20


@pytest.mark.parametrize(
    ("text", "size"), [("10M", 10 << 20), ("1.5k", 1536), ("2GB", None), ("7", 7), ("1gb", 1 << 30), (12, 12)]
)
def test_sizes(text: Any, size: int | None) -> None:
    if size is None:
        with pytest.raises(OutputError, match="must be a size from 1 to 2147483647 bytes"):
            parse_size(text)
    else:
        assert parse_size(text) == size


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e99", "", "M", "lots", None, [1]])
def test_what_is_no_size_is_refused(text: Any) -> None:
    with pytest.raises(OutputError, match=r"invalid output\.limit"):
        parse_size(text)
