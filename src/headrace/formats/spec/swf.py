"""The Standard Workload Format, version 2.2: a line of 18 numbers for each job (-1: unknown).

This is the format of the Parallel Workloads Archive (Feitelson and others) for logs of systems and output of workload
models. Lines that begin with `;` are comments; comments of the form `; Key: value` at the top describe the system.
Each line is read separately, so an invalid line does not affect the others.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Tuple, Union

Number = Union[int, float]

# Status, field 11. A job that was checkpointed has a line for each part after the line for the whole job.
FAILED, COMPLETED, PART, LAST_PART_COMPLETED, LAST_PART_FAILED, CANCELLED = range(6)

# The columns in order: (name for messages, least value, whether it may be a fraction).
_FIELDS: Tuple[Tuple[str, int, bool], ...] = (
    ("job number", 0, False),
    ("submit time", 0, True),
    ("wait time", -1, True),
    ("run time", -1, True),
    ("allocated processors", -1, False),
    ("average CPU time", -1, True),
    ("used memory", -1, True),
    ("requested processors", -1, False),
    ("requested time", -1, True),
    ("requested memory", -1, True),
    ("status", -1, False),
    ("user", -1, False),
    ("group", -1, False),
    ("executable", -1, False),
    ("queue", -1, False),
    ("partition", -1, False),
    ("preceding job", -1, False),
    ("think time", -1, True),
)
_MOST_STATUS = 5
# More than any time or count in a real log, and less than 2^53, up to which floats represent all integers exactly.
_MOST = 10**15
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEADER = re.compile(r";\s*([A-Za-z][A-Za-z0-9 ]*?)\s*:\s*(.*)")


class SwfError(ValueError):
    """An invalid line. `field` counts from 1, as the standard does; 0 if the line as a whole is invalid."""

    def __init__(self, field: int, rule: str) -> None:
        where = f"field {field} ({_FIELDS[field - 1][0]}): " if field else ""
        super().__init__(where + rule)
        self.field = field


class Record(NamedTuple):
    """A job: times in seconds (`submit` since the start of the log), memory in kilobytes per processor.

    -1 is unknown. The job requested `processors`, `limit` and `memory_limit`, and used `allocated`, `run` and `memory`.
    """

    job: int
    submit: Number
    wait: Number = -1
    run: Number = -1
    allocated: int = -1
    cpu_time: Number = -1
    memory: Number = -1
    processors: int = -1
    limit: Number = -1
    memory_limit: Number = -1
    status: int = -1
    user: int = -1
    group: int = -1
    executable: int = -1
    queue: int = -1
    partition: int = -1
    preceding: int = -1
    think_time: Number = -1


def decode(line: str) -> Record:
    """Decode a line. Raises SwfError with the field and its rule."""
    words = line.split()
    if len(words) != len(_FIELDS):
        raise SwfError(0, f"a job has {len(_FIELDS)} fields, this line has {len(words)}")
    values: List[Number] = []
    for i, word in enumerate(words):
        _, least, fraction = _FIELDS[i]
        if not (_DECIMAL if fraction else _INTEGER).fullmatch(word):
            raise SwfError(i + 1, f"must be {'a number' if fraction else 'an integer'}, not '{word}'")
        value: Number = float(word)
        if value > _MOST:
            raise SwfError(i + 1, f"must be at most 10^15, not {word}")
        if value == int(value):
            value = int(value)
        if value < least:
            raise SwfError(
                i + 1, f"must be at least 0, or -1 for unknown, not {word}" if least else f"must not be {word}"
            )
        values.append(value)
    if values[10] > _MOST_STATUS:
        raise SwfError(11, f"must be from -1 to {_MOST_STATUS}, not {words[10]}")
    return Record(*values)  # type: ignore[arg-type]  # integers where the table of fields says so


def encode(record: Record) -> str:
    """The line of a record, without a newline."""
    return " ".join(str(int(value)) if value == int(value) else repr(value) for value in record)


def header(line: str) -> Optional[Tuple[str, str]]:
    """The key and value of a header comment (`; MaxProcs: 128`); None for any other line."""
    found = _HEADER.fullmatch(line.strip())
    return (found.group(1), found.group(2)) if found else None


def encode_header(key: str, value: object) -> str:
    """The line of a header comment, without a newline."""
    return f"; {key}: {value}"
