"""Sends the client's side of a recorded conversation to a broker of ours and tells where the answers differ.

Requests go out in the recording's order, each after the responses that the real client had seen before it. What a
client got from the broker and sends back (job ids, the rank of a job's lead shell) is translated to ours, and ours is
translated back in what the broker answers, so that ids need no mask. Nothing is ignored here: what may differ is the
caller's business.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import os
import re
import select
import socket
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

from wire_recording import Recording, body, signed_jobspec

from headrace.formats.spec import jobid
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.message import EVENT, NODEID_ANY, REQUEST, Deframer, Message, frame
from waiting import PATIENCE

# The recordings' names for the submitter's folder, the host, and an instance's run directory.
HOME, HOST, RUNDIR = "/home/user", "node0", "/tmp/flux-XXXXXX"


class Difference(NamedTuple):
    """One place where our answer is not the recorded one. `kind`: value, type, missing, extra or order."""

    where: str
    kind: str
    recorded: object
    ours: object

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}: recorded {_short(self.recorded)}, ours {_short(self.ours)}"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) < 400 else text[:400] + "…"


class Connection:
    """A client's socket, with what arrived sorted by matchtag (responses) and by topic (events)."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        assert self.socket.recv(1) == b"\0"
        self._deframer = Deframer()
        self.inbox: defaultdict[int | str, deque[Message]] = defaultdict(deque)

    def next(self, key: int | str) -> Message | None:
        """The next response of a matchtag or event of a topic, None when it does not come in time."""
        limit = time.monotonic() + PATIENCE
        while not self.inbox[key]:
            left = limit - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                return None
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self._deframer.feed(data)
            for msg in self._deframer:
                self.inbox[msg.topic if msg.type == EVENT else msg.matchtag].append(msg)
        return self.inbox[key].popleft()


class Stream(NamedTuple):
    """The responses to one request, side by side."""

    name: str
    recorded: list[dict]
    ours: list[dict]


class Replay:
    """One instance that recordings are played to, in their order. `home` stands for the submitter's folder."""

    def __init__(self, path: str, home: str, environment: dict[str, str]) -> None:
        self.path = path
        self.home = home
        self.environment = environment
        self.ids: dict[int, int] = {}
        self.leaders: dict[str, int] = {}

    def know(self, recorded: int, ours: int) -> None:
        """A job id, or another number, of the recordings is this one here."""
        self.ids[recorded] = ours

    def play(self, recording: Recording) -> list[Difference]:
        """Play one conversation; the differences, in the order of the requests."""
        connections: dict[int, Connection] = {}
        streams: list[Stream] = []
        current: dict[tuple[int, int], Stream] = {}
        dead: set[tuple[int, int]] = set()
        found: list[Difference] = []
        for entry in recording.messages:
            number = entry["conn"]
            if number not in connections:
                connections[number] = Connection(self.path)
            connection = connections[number]
            key = (number, entry.get("matchtag", 0))
            if entry["dir"] == "c2b":
                connection.inbox.pop(key[1], None)
                dead.discard(key)
                connection.socket.sendall(frame(self._outgoing(entry)))
                current[key] = Stream(_name(entry), [], [])
                streams.append(current[key])
            elif entry["type"] == "response":
                stream = current[key]
                stream.recorded.append(_readable(entry))
                msg = None if key in dead else connection.next(key[1])
                if msg is None:
                    dead.add(key)
                else:
                    stream.ours.append(self._incoming(entry, stream, msg))
            else:
                msg = connection.next(entry["topic"])
                if msg is None:
                    found.append(Difference(entry["topic"], "missing", entry.get("payload"), None))
        for (number, tag), stream in current.items():
            # What a stream says after the recording's last frame was not recorded; a plain call has one answer.
            if "watch" not in stream.name and "exec" not in stream.name:
                late = connections[number].inbox.get(tag, ())
                found += [Difference(stream.name, "extra", None, self._ours(msg)) for msg in late]
        for connection in connections.values():
            connection.socket.close()
        for stream in streams:
            found += compare_streams(stream)
        return found

    def _outgoing(self, entry: dict) -> Message:
        payload = self._translate(entry.get("payload"), self._to_ours())
        if isinstance(payload, dict) and (signed := signed_jobspec(payload)) is not None:
            key, spec = signed
            system = spec["attributes"]["system"]
            if "environment" in system:
                system["environment"] = self.environment
            del payload[key]
            payload = {"J": _sign(spec), **payload}
        elif entry["topic"] == "rexec.exec":
            payload["cmd"]["env"] = self.environment
        topic = self._to_ours()(entry["topic"]) if entry["topic"] else ""
        node = NODEID_ANY if entry.get("nodeid", "any") == "any" else entry["nodeid"]
        node = self.leaders.get(entry["topic"].rpartition(".")[0], node)
        kind = REQUEST if entry["type"] == "request" else EVENT
        return Message(kind, topic, payload, entry["flags"], aux1=node, aux2=entry["matchtag"], payload=body(entry))

    def _incoming(self, entry: dict, stream: Stream, msg: Message) -> dict:
        payload = entry.get("payload")
        if entry["topic"] == "job-ingest.submit" and payload and msg.errnum == 0:
            self.know(payload["id"], msg.obj["id"])
        ours = self._ours(msg)
        event = ours.get("payload", {}).get("event")
        if isinstance(event, list) and event[0]["name"] == "shell.init":
            self.leaders[event[0]["context"]["service"]] = event[0]["context"]["leader-rank"]
        return ours

    def _ours(self, msg: Message) -> dict:
        """A response of ours in the recordings' form and words."""
        seen: dict = {"topic": self._to_recorded()(msg.topic), "flags": msg.flags, "errnum": msg.errnum}
        if msg.payload is None:
            return seen
        try:
            seen["payload"] = self._translate(_unfold(msg.obj), self._to_recorded())
        except ValueError:
            seen["payload_text"] = self._to_recorded()(msg.payload.rstrip(b"\0").decode("utf-8", "replace"))
            if "�" in seen["payload_text"] or msg.topic == "content.store":
                seen["payload_b64"] = base64.b64encode(msg.payload).decode()
                del seen["payload_text"]
        return seen

    def _to_ours(self):
        """What turns a recorded text or number into ours."""
        pairs = [(jobid.encode(old), jobid.encode(new)) for old, new in self.ids.items()]
        pairs += [(jobid.encode(old, "f58plain"), jobid.encode(new, "f58plain")) for old, new in self.ids.items()]
        return _translator([*pairs, (HOME, self.home)], self.ids)

    def _to_recorded(self):
        back = {new: old for old, new in self.ids.items()}
        pairs = [(jobid.encode(new), jobid.encode(old)) for new, old in back.items()]
        pairs += [(jobid.encode(new, "f58plain"), jobid.encode(old, "f58plain")) for new, old in back.items()]
        pairs.append((self.home, HOME))
        for host in (socket.gethostname(), socket.gethostname().partition(".")[0]):
            pairs += [(str(Hostlist([host] * count)), ",".join([HOST] * count)) for count in (3, 2, 1)]
        return _translator(pairs, back)

    def _translate(self, value, translator):
        if isinstance(value, dict):
            return {translator(name): self._translate(item, translator) for name, item in value.items()}
        if isinstance(value, list):
            return [self._translate(item, translator) for item in value]
        return translator(value)


def _translator(pairs: list[tuple[str, str]], numbers: dict[int, int]):
    words = dict(pairs)
    pattern = re.compile("|".join(rf"(?<![\w]){re.escape(old)}(?![\w])" for old, _ in pairs))

    def translate(value):
        if isinstance(value, str):
            text = pattern.sub(lambda match: words[match.group()], value)
            return re.sub(r"/tmp/(hr-[^/]+/)?flux-[^/]+(?=/)", RUNDIR, text) if "/flux-" in text else text
        if isinstance(value, int) and not isinstance(value, bool):
            return numbers.get(value, value)
        return value

    return translate


def _sign(spec: dict) -> str:
    header = f"version\0i1\0userid\0i{os.getuid()}\0mechanism\0snone\0".encode()
    return ".".join([*(base64.b64encode(part).decode() for part in (header, json.dumps(spec).encode())), "none"])


def _name(entry: dict) -> str:
    """How differences call the responses to a request: its topic, and which log it watches or attribute it asks for."""
    payload = entry.get("payload") or {}
    about = payload.get("path") or (payload.get("name") if entry["topic"] == "attr.get" else None)
    return f"{entry['topic']}({about})" if about else entry["topic"]


def _readable(entry: dict) -> dict:
    seen = {name: entry[name] for name in ("topic", "flags", "errnum")}
    for name in ("payload_text", "payload_b64"):
        if name in entry:
            seen[name] = entry[name]
    if "payload" in entry:
        seen["payload"] = _unfold(entry["payload"])
    return seen


def _unfold(value):
    """`value` with the JSON texts inside it (events, logs, jobspec, R) taken apart: their fields are compared too."""
    if isinstance(value, dict):
        if "mods" in value:
            # By name: which modules there are is one question, what is told of each another.
            return {"mods": {module["name"]: module for module in value["mods"]}}
        return {name: _unfold(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_unfold(item) for item in value]
    if isinstance(value, str) and value[:1] == "{":
        try:
            return [json.loads(line) for line in value.splitlines()] if value[-1] == "\n" else json.loads(value)
        except ValueError:
            return value
    return value


def compare_streams(stream: Stream) -> list[Difference]:
    """Differences between the recorded and our responses to one request."""
    recorded, ours = list(stream.recorded), list(stream.ours)
    if stream.name.endswith("(guest.output)") or stream.name == "rexec.exec":
        recorded, ours = _by_task(recorded), _by_task(ours)
    if stream.name == "job-list.list":
        recorded, ours = _by_id(recorded), _by_id(ours)
    theirs, mine = [_label(item) for item in recorded], [_label(item) for item in ours]
    if theirs != mine and (len(theirs) > 1 or len(mine) > 1 or not ours):
        return [Difference(stream.name, "order" if sorted(theirs) == sorted(mine) else "missing", theirs, mine)]
    return [
        difference
        for number, (one, other) in enumerate(zip(recorded, ours))
        for difference in compare(f"{stream.name} {_place(one, number)}".rstrip(), one, other)
    ]


def _label(answer: dict) -> str:
    """What a response of a stream is: its event's name, or its errnum."""
    payload = answer.get("payload", {})
    event, io = payload.get("event"), payload.get("io")
    if io:
        return f"data of task {io['rank']}, {io['stream']}"
    if isinstance(event, list):
        name, context = event[0]["name"], event[0].get("context", {})
        return f"data of task {context['rank']}, {context['stream']}" if name == "data" else name
    return f"errnum {answer['errnum']}"


def _place(answer: dict, number: int) -> str:
    """Which response of a stream: its event's name, or its number behind the first."""
    label = _label(answer)
    return (f"#{number}" if number else "") if label.startswith("errnum") else label


def _by_task(answers: list[dict]) -> list[dict]:
    """Output by task and stream: what two tasks, or two streams of one, write has no order between them."""
    labels = [_label(answer) for answer in answers]
    places = [index for index, label in enumerate(labels) if label.startswith("data")]
    ordered = list(answers)
    for place, index in zip(places, sorted(places, key=lambda index: labels[index])):
        ordered[place] = answers[index]
    return ordered


def _by_id(answers: list[dict]) -> list[dict]:
    """A listing by job id, where it is by the time of the end: jobs submitted at once end in any order."""
    for one, next_one in itertools.pairwise(_jobs(answers)):
        assert one.get("t_inactive", math.inf) >= next_one.get("t_inactive", 0.0), (one, next_one)
    return sorted(answers, key=lambda answer: [job["id"] for job in _jobs([answer])], reverse=True)


def _jobs(answers: list[dict]) -> list[dict]:
    return [job for answer in answers for job in answer.get("payload", {}).get("jobs", [])]


def compare(where: str, recorded: object, ours: object) -> Iterator[Difference]:
    """Differences between two JSON values, each with its path."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        for name in recorded.keys() | ours.keys():
            path = f"{where}.{name}"
            if name not in ours:
                yield Difference(path, "missing", recorded[name], None)
            elif name not in recorded:
                yield Difference(path, "extra", None, ours[name])
            else:
                yield from compare(path, recorded[name], ours[name])
    elif isinstance(recorded, list) and isinstance(ours, list):
        if len(recorded) != len(ours):
            yield Difference(where, "missing" if len(recorded) > len(ours) else "extra", recorded, ours)
            return
        for index, (one, other) in enumerate(zip(recorded, ours)):
            yield from compare(f"{where}[{index}]", one, other)
    elif type(recorded) is not type(ours):
        yield Difference(where, "type", recorded, ours)
    elif recorded != ours:
        yield Difference(where, "value", recorded, ours)
