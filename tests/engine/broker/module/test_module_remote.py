"""The process of a module as its broker sees it: what it says and when, played from the broker's end of the socket."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.broker.module import process as module_process
from headrace.engine.broker.module.pipe import control
from headrace.engine.broker.module.remote import RemoteBroker
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

START = {"uuid": "its-uuid", "args": ["a=1"], "rank": 3, "owner": 7, "may_grow": False, "config": {"x": {"y": 1}}}


@pytest.fixture(autouse=True)
def _without_garbage() -> None:
    """A forked process would collect what other tests have left, and close descriptors that are its own by then."""
    gc.collect()


class Process:
    """A module in a process of its own. Requests of it that the test does not wait for are answered with success."""

    def __init__(self, folder: Path, text: str) -> None:
        self.path = folder / "guest.py"
        self.path.write_text(text)
        self.forked = module_process.fork(str(self.path), [])
        self.forked.sock.settimeout(20)
        self._deframer = m.Deframer()
        self._messages = self._arriving()
        self.asked: list[Message] = []

    def _arriving(self) -> Iterator[Message]:
        while data := self.forked.sock.recv(1 << 16):
            self._deframer.feed(data)
            yield from self._deframer

    def send(self, msg: Message) -> None:
        self.forked.sock.sendall(m.frame(msg))

    def start(self, **attrs: str) -> None:
        """Up to its start message."""
        assert self.said("found") == {"name": "guest", "path": str(self.path)}
        self.send(control("start", {**START, "name": "guest", "path": str(self.path), "attrs": {"size": "4", **attrs}}))

    def said(self, op: str) -> Any:
        """The body of the next control message, which must be `op`."""
        msg = self.next(m.CONTROL)
        assert msg.topic == op, msg.obj
        return msg.obj

    def next(self, kind: int, topic: str = "") -> Message:
        """The next message of a kind; requests before it are answered."""
        for msg in self._messages:
            if msg.type == kind and msg.topic.startswith(topic):
                return msg
            if msg.type == m.REQUEST:
                self.asked.append(msg)
                if not msg.noresponse:
                    self.send(m.response(msg, {}))
        raise AssertionError("the process ended")

    def ask(self, method: str, obj: Any = None) -> Any:
        msg = m.request(f"guest.{method}", obj or {}, matchtag=9, userid=7, rolemask=m.ROLE_OWNER)
        msg.routes.append(b"client")
        self.send(msg)
        reply = self.next(m.RESPONSE)
        assert (reply.matchtag, reply.routes, reply.errnum) == (9, [b"client"], 0)
        return reply.obj

    def end(self) -> int:
        """Wait for its end; the exit code."""
        for msg in self._messages:
            self.asked.append(msg)
        os.waitid(os.P_PID, self.forked.pid, os.WEXITED | os.WNOWAIT)
        code = self.forked.poll()
        assert code is not None
        return code

    def close(self) -> None:
        if self.forked.poll() is None:
            self.forked.kill()
            os.waitid(os.P_PID, self.forked.pid, os.WEXITED | os.WNOWAIT)
            assert self.forked.poll() is not None
        self.forked.sock.close()
        assert self.forked.stdout is not None
        self.forked.stdout.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Any]:
    made: list[Process] = []

    def make(text: str) -> Process:
        made.append(Process(tmp_path, text))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_module_has_the_context_that_it_would_have_in_the_broker(process: Any) -> None:
    guest = process(
        "def load(ctx, args):\n"
        "    tell = lambda msg: {'rank': ctx.rank, 'size': ctx.size, 'args': args, 'config': ctx.config,\n"
        "                        'a': ctx.attrs.get('a', ''), 'name': ctx.name}\n"
        "    ctx.service('guest', {'tell': tell})\n"
    )
    guest.start(a="b")
    guest.said("running")
    # Who asks for the service as soon as the module is said to run is not too early.
    assert [(msg.topic, msg.obj, msg.sender) for msg in guest.asked] == [
        ("service.add", {"service": "guest"}, "its-uuid")
    ]
    known = {"rank": 3, "size": 4, "args": ["a=1"], "config": {"x": {"y": 1}}, "a": "b", "name": "guest"}
    assert guest.ask("tell") == known
    guest.send(control("config", {"config": {"z": 2}}))
    guest.send(control("attr", {"name": "a", "value": "c"}))
    assert guest.ask("tell") == {**known, "config": {"z": 2}, "a": "c"}
    guest.send(control("attr", {"name": "a", "value": None}))
    assert guest.ask("tell")["a"] == ""
    # The instance has grown.
    guest.send(control("attr", {"name": "size", "value": "6"}))
    assert guest.ask("tell")["size"] == 6


def test_a_module_hears_of_hosts_that_are_added(process: Any) -> None:
    guest = process(
        "def load(ctx, args):\n"
        "    added = []\n"
        "    ctx.on_growth(lambda ranks: added.append([str(ranks), ctx.size, ctx.attrs.get('hostlist')]))\n"
        "    ctx.service('guest', {'tell': lambda msg: {'added': added, 'alone': ctx.alone}})\n"
    )
    guest.start(**{"broker.boot-method": "config", "hostlist": "a[0-3]"})
    guest.said("running")
    for name, value in (("size", "6"), ("hostlist", "a[0-5]")):
        guest.send(control("attr", {"name": name, "value": value}))
    # Hosts that are known already may be named again, alone or with new ones.
    for ranks in ("4-5", "2"):
        guest.send(control("grown", {"ranks": ranks}))
    assert guest.ask("tell") == {"added": [["4-5", 6, "a[0-5]"], ["2", 6, "a[0-5]"]], "alone": False}


def test_what_a_module_asks_of_its_broker_are_messages(process: Any) -> None:
    guest = process(
        "def load(ctx, args):\n"
        "    ctx.subscribe('news', print)\n"
        "    ctx.log(4, 'one\\ntwo')\n"
        "    ctx.publish('told', {'x': 1})\n"
    )
    guest.start()
    event = guest.next(m.EVENT)
    assert (event.topic, event.obj) == ("told", {"x": 1})
    guest.said("running")
    assert [msg.topic for msg in guest.asked] == ["event.subscribe", "log.append", "log.append"]
    assert guest.asked[0].obj == {"topic": "news"}
    lines = [(msg.payload or b"").rstrip(b"\0").decode() for msg in guest.asked[1:]]
    assert [line.rpartition(" ")[2] for line in lines] == ["one", "two"] and " guest " in lines[0]


@pytest.mark.parametrize(
    ("load", "errnum", "text"),
    [
        ("raise RpcError(errno.EPERM, 'not here')", errno.EPERM, "not here"),
        ("ctx.no_such_thing()", errno.EINVAL, "AttributeError: 'ModuleContext' object has no attribute"),
        ("ctx.tree", errno.EINVAL, "broker.overlay exists in the broker's process only"),
    ],
)
def test_a_module_that_does_not_load_says_why_and_its_process_ends(
    process: Any, load: str, errnum: int, text: str
) -> None:
    guest = process(
        f"import errno\nfrom headrace.engine.broker.module.context import RpcError\ndef load(ctx, args): {load}\n"
    )
    guest.start()
    body = guest.said("failed")
    assert body["errnum"] == errnum and text in body["text"]
    assert guest.end() == 0


def test_a_module_whose_service_is_anothers_does_not_load(process: Any) -> None:
    guest = process("def load(ctx, args): ctx.service('kvs', {})\n")
    guest.start()
    add = guest.next(m.REQUEST, "service.add")
    guest.send(m.error_response(add, errno.EEXIST, "service kvs is already registered"))
    assert guest.said("failed") == {"errnum": errno.EEXIST, "text": "service kvs is already registered"}


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "import no_such_module", "x ="])
def test_a_file_that_is_no_module_is_told_before_anything_starts(process: Any, text: str) -> None:
    guest = process(text + "\n")
    if "SystemExit" in text:
        # It meant its process.
        assert guest.end() == 1
        return
    body = guest.said("failed")
    assert body["errnum"] == errno.EINVAL and body["text"].startswith(("ModuleNotFoundError: ", "SyntaxError: "))
    assert guest.end() == 1


def test_the_last_words_of_a_module_that_is_removed_are_heard(process: Any) -> None:
    guest = process(
        "def load(ctx, args):\n"
        "    ctx.service('guest', {'hang': lambda msg: None})\n"
        "    ctx.on_unload(lambda: ctx.publish('bye', {}))\n"
    )
    guest.start()
    guest.said("running")
    guest.send(control("remove"))
    guest.send(control("remove"))
    assert guest.next(m.EVENT).topic == "bye"
    assert guest.end() == 0


def test_what_exists_in_the_broker_only_is_named() -> None:
    broker = RemoteBroker(None, {**START, "attrs": {"size": "4"}})  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"broker\.agent exists .* load this module without --exec"):
        _ = broker.agent
