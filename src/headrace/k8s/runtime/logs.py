"""Log lines of a controller on standard error: JSON for collectors, or text for users. Both have the call's `extra`."""

from __future__ import annotations

import json
import logging
import sys
import time

_RECORD = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime"))


class JsonLines(logging.Formatter):
    """One JSON object on each line: time, level, logger, message and the call's `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _RECORD},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """For users: time, level, message and then key=value."""

    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(f" {key}={value}" for key, value in vars(record).items() if key not in _RECORD)
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = f"{clock} {record.levelname:<7} {record.getMessage()}{extra}"
        return text + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def log_to_stderr(style: str, level: str) -> None:
    """`style` is json or text, `level` a lower-case name of a level of package logging."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines())
    root = logging.getLogger("headrace")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
