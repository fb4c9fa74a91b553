"""The state of a job from its eventlogs (RFC 18, 21, 24): status, events, and lines of its nodes. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from headrace.formats.spec.eventlog import Event
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.job_exception import is_fatal
from headrace.formats.spec.lines import LineReader
from headrace.wire.query.eventlog_format import text
from headrace.wire.query.job_info import exit_reason

CREATED, RUNNING, COMPLETE, FAILED = "Created", "Running", "Complete", "Failed"
# Phases of a node's pod on Kubernetes.
_PENDING, _SUCCEEDED = "Pending", "Succeeded"
# The least severe level (RFC 5424) of the job shell's messages that are shown among a node's output. They say why its
# tasks did not run.
_ERROR = 3


class Standing(NamedTuple):
    """The status of a job, the reason of its failure ("" without one), and the phase of each node."""

    status: str
    reason: str
    phases: list[str]


class Notice(NamedTuple):
    """An event of a job, about `node`, or about the whole job if `node` is None."""

    timestamp: float
    name: str
    message: str
    node: int | None = None


def standing(log: list[Event], exec_log: Iterable[Event], nodes: int, lost: str) -> Standing:
    """The status of a job on `nodes` nodes.

    `lost` is the reason why its log will not continue, "" if it may.
    """
    names = {event.name for event in log}
    if "clean" not in names and not lost:
        started = "start" in names
        return Standing(RUNNING if started else CREATED, "", [RUNNING if started else _PENDING] * nodes)
    reason = "" if "clean" in names else lost
    status = None
    for name, context in ((event.name, event.context or {}) for event in log):
        if name == "finish":
            status = int(context["status"])
        elif is_fatal(name, context) and not reason:
            reason = _exception(context)
    if not reason and status != 0:
        reason = exit_reason(status) if status is not None else "it has not run"
    if not reason:
        return Standing(COMPLETE, "", [_SUCCEEDED] * nodes)
    return Standing(FAILED, reason, _phases(exec_log, nodes))


def _phases(exec_log: Iterable[Event], nodes: int) -> list[str]:
    """The phases of a failed job's nodes, by their shells' exit statuses if the log has all of them."""
    contexts = [event.context or {} for event in exec_log if event.name == "shell-exit"]
    exits = {int(context["rank"]): context["wait_status"] for context in contexts}
    if len(exits) != nodes:
        return [FAILED] * nodes
    return [FAILED if exits[rank] else _SUCCEEDED for rank in sorted(exits)]


def _exception(context: dict[str, object]) -> str:
    note = context.get("note")
    return f"{context['type']}: {note}" if note else str(context["type"])


def notices(log: Iterable[Event], exec_log: Iterable[Event], output: Iterable[Event]) -> list[Notice]:
    """The events of a job in order of time: those of its eventlog, and the messages of its shells."""
    found = [Notice(event.timestamp, event.name, _message(event)) for event in log]
    for event in chain(exec_log, output):
        if event.name == "log":
            context = event.context or {}
            found.append(Notice(event.timestamp, "log", str(context.get("message", "")), context.get("rank")))
    return sorted(found, key=lambda notice: notice.timestamp)


def _message(event: Event) -> str:
    context = event.context or {}
    if event.name == "exception":
        return _exception(context)
    if event.name == "finish":
        return exit_reason(int(context["status"])) if context["status"] else "Exit 0"
    return text(event).partition(" ")[2] or event.name


class NodeLines:
    """The lines that the tasks of one node write, from the job's output log.

    Tasks are placed in blocks: node N has the tasks from N * tasks on.
    """

    def __init__(self, node: int, tasks: int) -> None:
        self._node = node
        self._ranks = Idset(range(node * tasks, (node + 1) * tasks))
        self._readers: dict[tuple[int, str], LineReader] = {}

    def feed(self, events: Iterable[Event]) -> Iterator[str]:
        """The lines that these events complete."""
        for event in events:
            context = event.context or {}
            if event.name == "data":
                yield from self._data(context)
            elif event.name == "log" and context.get("rank") == self._node and context.get("level", 5) <= _ERROR:
                yield from f"flux-shell[{self._node}]: {context.get('message', '')}".splitlines()

    def _data(self, context: dict[str, object]) -> Iterator[str]:
        ranks = Idset.parse(str(context["rank"])) & self._ranks
        if not ranks:
            return
        stream, written = str(context["stream"]), str(context.get("data") or "")
        encoded = context.get("encoding") == "base64"
        data = base64.b64decode(written) if encoded else written.encode("utf-8", "surrogateescape")
        repeat = context.get("repeat", 1)
        for rank in ranks:
            reader = self._readers.setdefault((rank, stream), LineReader())
            lines = reader.feed(data * (repeat if isinstance(repeat, int) else 1))
            if context.get("eof") and reader.rest:
                lines.append(reader.take_rest())
            yield from map(_shown, lines)

    def rest(self) -> Iterator[str]:
        """Incomplete lines at the end of the output."""
        for reader in self._readers.values():
            if reader.rest:
                yield _shown(reader.take_rest())


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "replace")
