"""The output of commands that the broker runs itself as lines of its log: those of the state `cleanup`, in which the
broker's own output may be unread, and those that load crontabs.
"""

from __future__ import annotations

import contextlib
import logging
import os
from functools import partial
from typing import TYPE_CHECKING

from headrace.formats.spec.lines import LineReader

if TYPE_CHECKING:
    from .parts import BrokerBase

# Bytes without a newline that make a line of their own.
_LONGEST_LINE = 1 << 16


class LoggedOutput:
    """Two pipes to a command's stdout and stderr, whose lines are logged as `name`'s: level info and err."""

    def __init__(self, broker: BrokerBase, name: str) -> None:
        """Raises OSError if there are no descriptors."""
        self._broker = broker
        self._name = name
        self._levels: dict[int, int] = {}
        self._lines: dict[int, LineReader] = {}
        # (ours, the command's) pairs, to be inherited.
        self.fds: list[tuple[int, int]] = []
        for number, level in ((1, logging.INFO), (2, logging.ERROR)):
            reader, writer = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(reader, False)
            self._levels[reader] = level
            self._lines[reader] = LineReader(_LONGEST_LINE)
            self.fds.append((writer, number))

    def started(self) -> None:
        """Close the command's ends, after the command has them or has failed to start."""
        for writer, _ in self.fds:
            os.close(writer)
        self.fds = []
        for reader in self._levels:
            self._broker.loop.add_reader(reader, partial(self._read, reader))

    def close(self) -> None:
        """The command has ended: log the rest. Its remaining children write to a closed pipe."""
        for reader in self._levels:
            self._read(reader)
            self._log(reader, [self._lines[reader].take_rest()])
            self._broker.loop.remove_reader(reader)
            os.close(reader)

    def _read(self, reader: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data = os.read(reader, _LONGEST_LINE)
                if not data:
                    self._broker.loop.remove_reader(reader)
                    return
                self._log(reader, self._lines[reader].feed(data))

    def _log(self, reader: int, lines: list[bytes]) -> None:
        for line in lines:
            if line:
                text = line.decode("utf-8", "replace")
                self._broker.log(self._levels[reader], "broker", f"{self._name}: {text}")
