"""A handle whose answers a test gives."""

from __future__ import annotations

import base64
import errno
import os
from collections.abc import Iterator

from headrace.formats.spec.message import Message


def payload_of(msg: Message) -> object:
    if msg.payload is None:
        return None
    try:
        return msg.obj
    except ValueError:
        try:
            return msg.payload.decode()
        except UnicodeDecodeError:
            return base64.b64encode(msg.payload).decode()


class Answers:
    """Stands for the handle of a command: `given` answers by topic (the last one again and again; an OSError is raised;
    for a stream all of them, each an answer), `asked` is what the command wanted to know."""

    def __init__(self, given: dict[str, list[object]]) -> None:
        self.given = given
        self.asked: list[tuple[str, object]] = []

    def __call__(self, _uri: str = "") -> Answers:
        return self

    def rpc(self, topic: str, obj: object = None, nodeid: int = 0) -> _Call:
        self.asked.append((topic, obj))
        answers = self.given[topic]
        return _Call([answers.pop(0) if len(answers) > 1 else answers[0]])

    def stream(self, topic: str, obj: object = None) -> _Call:
        self.asked.append((topic, obj))
        return _Call(list(self.given[topic]))

    def attr_get(self, name: str) -> str:
        return str(self.given[name][0])

    def send(self, msg: Message) -> None:
        self.asked.append((msg.topic, payload_of(msg)))

    def close(self) -> None:
        pass


class _Call:
    def __init__(self, answers: list[object]) -> None:
        self.answers = answers
        self.canceled = False

    @property
    def done(self) -> bool:
        return not self.answers

    def get(self, _timeout: float | None = None) -> object:
        answer = self.answers.pop(0) if self.answers else OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        if isinstance(answer, OSError):
            raise answer
        return answer

    def __iter__(self) -> Iterator[object]:
        while self.answers:
            yield self.get()

    def cancel(self, _topic: str = "") -> None:
        self.canceled = True
