"""A broker that plays back recorded conversations, so that commands are tested against real answers without a broker.

A client's request is answered with the responses that the real broker gave to the same request (same topic and
payload). A request that was not recorded is answered with ENOSYS and remembered: a command must not ask for more than
the real one did.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from wire_recording import WIRE, Recording, signed_jobspec

from headrace.formats.spec.message import REQUEST, Deframer, Message, error_response, frame, response
from scripted import Answers, payload_of

ENOSYS = 38
# What differs by the submitter's machine and shell.
_MACHINE = ("environment", "cwd")


def comparable(topic: str, payload: object) -> object:
    """A payload as it is compared: without times and without what belongs to the submitter's machine."""
    if not isinstance(payload, dict):
        return payload
    payload = json.loads(json.dumps(payload))
    if topic == "job-ingest.submit":
        recorded = signed_jobspec(payload)
        if recorded is None:
            spec = json.loads(base64.b64decode(payload.pop("J").split(".")[1]))
        else:
            key, spec = recorded
            del payload[key]
        system = spec["attributes"]["system"]
        for key in _MACHINE:
            system.pop(key, None)
        system.get("shell", {}).get("options", {}).pop("rlimit", None)
        payload["jobspec"] = spec
    elif topic == "job-list.list":
        payload["attrs"].sort()
    elif topic.endswith(".ping"):
        payload = {"seq": payload["seq"], "pad": payload["pad"]}
    elif topic == "rexec.exec":
        payload["cmd"].pop("env")
        payload["cmd"].pop("cwd")
    return payload


class PlaybackBroker:
    """Listens on a local socket and answers from a recording."""

    def __init__(self, recording: Recording, path: Path) -> None:
        self.recording = recording
        self.left = list(recording.requests)
        self.unexpected: list[str] = []
        self.uri = f"local://{path}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        deframer = Deframer()
        # A command may leave while answers are still on their way.
        with contextlib.suppress(ConnectionError):
            client.sendall(b"\0")
            while data := client.recv(1 << 16):
                deframer.feed(data)
                for msg in deframer:
                    if msg.type == REQUEST:
                        for answer in self._answers(msg):
                            client.sendall(frame(answer))

    def _answers(self, msg: Message) -> list[Message]:
        payload = payload_of(msg)
        for index, (entry, answers) in enumerate(self.left):
            recorded = entry.get("payload", entry.get("payload_text", entry.get("payload_b64")))
            node = 0xFFFFFFFF if entry["nodeid"] == "any" else entry["nodeid"]
            same = entry["topic"] == msg.topic and node == msg.nodeid
            if same and comparable(msg.topic, recorded) == comparable(msg.topic, payload):
                del self.left[index]
                events = [_event(event) for event in self.recording.events] if msg.topic == "event.subscribe" else []
                return [_response(msg, answer) for answer in answers] + events
        if msg.noresponse:
            return []
        self.unexpected.append(f"{msg.topic} node={msg.nodeid} {payload}")
        return [error_response(msg, ENOSYS)]

    def close(self) -> None:
        # A thread that waits in accept() goes on to wait when its socket is only closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()


def _response(to: Message, entry: dict) -> Message:
    if "payload" in entry:
        return response(to, entry["payload"], entry["errnum"])
    if "payload_text" in entry:
        return response(to, None, entry["errnum"], entry["payload_text"].encode() + (b"\0" if entry["errnum"] else b""))
    if "payload_b64" in entry:
        return response(to, None, entry["errnum"], base64.b64decode(entry["payload_b64"]))
    return response(to, None, entry["errnum"])


def _event(entry: dict) -> Message:
    from headrace.formats.spec.message import event

    return event(entry["topic"], entry.get("payload"))


class Outcome:
    """What a command left behind."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.rc = done.returncode
        self.stdout = done.stdout.decode()
        self.stderr = done.stderr.decode()


_MAIN = "import sys; from headrace.cli.main import flux; sys.argv[0] = 'flux'; sys.exit(flux())"


@pytest.fixture
def flux(tmp_path: Path):
    """Run a `flux` command line in an empty folder, standard input empty."""

    def run(*argv: str, uri: str = "", stdin: bytes = b"", **env: str) -> Outcome:
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", "TZ": "UTC", **env}
        if uri:
            environ["FLUX_URI"] = uri
        environ["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
        command = [sys.executable, "-c", _MAIN, *argv]
        done = subprocess.run(
            command, check=False, input=stdin, capture_output=True, cwd=tmp_path, env=environ, timeout=60
        )
        return Outcome(done)

    return run


@pytest.fixture
def playback(tmp_path_factory: pytest.TempPathFactory):
    """Start a broker that plays the recording whose file name starts with the given number."""
    brokers: list[PlaybackBroker] = []

    def start(number: str) -> PlaybackBroker:
        (path,) = WIRE.glob(f"{number}-*.jsonl")
        broker = PlaybackBroker(Recording(path), tmp_path_factory.mktemp("broker") / "local")
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answers]:
    """`answers(module, {topic: answer or [answers]}, TOPIC=the same, ...)` has the functions of a command's module ask
    who is returned; in topics that are keywords `__` is a dot and `_` a dash."""

    def give(module: object, exact: dict[str, object] | None = None, **given: object) -> Answers:
        topics = {name.replace("__", ".").replace("_", "-"): answer for name, answer in given.items()}
        topics.update(exact or {})
        made = Answers({name: list(each) if isinstance(each, list) else [each] for name, each in topics.items()})
        monkeypatch.setattr(module, "Handle", made)
        return made

    return give
