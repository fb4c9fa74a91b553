"""Jobs for a simulation from a trace: Standard Workload Format, or one JSON object per line.

An invalid line is reported with its number and the error, and reading continues: logs of real systems have such lines.

A JSON line has `id` (RFC 19, any form), `jobspec` (RFC 14), `submit` and `runtime` (seconds), and may have `urgency` (0
to 31, 16 if missing) and `user`; other keys are ignored. Times are rounded to whole seconds: a submission down,
runtimes and limits up. Every job runs for at least one second.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from math import ceil, floor
from typing import Any, NamedTuple

from headrace.formats.spec import jobid, swf
from headrace.formats.spec.urgency import URGENCY_DEFAULT, URGENCY_EXPEDITE, URGENCY_HOLD
from headrace.sched.graph.request import Count, JobRequest, Request, RequestError, parse_jobspec
from headrace.sched.queueing.simulate import Job

_MOST_SECONDS = 10**15
# Synthetic jobs: their load relative to the machine's capacity, their users, and their runtimes in seconds.
_LOAD = 0.95
_USERS = 20
_SHORTEST, _LONGEST = 10, 86_400
# Typical time limits in minutes.
_LIMITS = (5, 10, 15, 30, 60, 120, 240, 480, 720, 1440)


class Fault(NamedTuple):
    """An invalid line (numbered from 1): the field, and the rule that it breaks."""

    line: int
    rule: str


class Trace(NamedTuple):
    """Jobs in the order of their lines. `skipped` counts valid lines without a job to simulate, by reason."""

    jobs: list[Job]
    faults: list[Fault]
    skipped: dict[str, int]
    header: dict[str, str]


class _Skip(Exception):
    """The line is valid, but not a job to simulate."""


class _FieldError(ValueError):
    """A field of a JSON line is invalid."""


def read(lines: Iterable[str], unit: str = "core", limit: int | None = None) -> Trace:
    """The jobs of a trace, at most `limit`; the first nonempty line determines the format.

    `unit` is the meaning of a processor in the Standard Workload Format: a "core", or a whole "node".
    """
    numbered = ((i, line.strip()) for i, line in enumerate(lines, 1))
    filled = ((i, line) for i, line in numbered if line)
    head = next(filled, None)
    trace = Trace([], [], {}, {})
    if head is None:
        return trace
    read_line: Callable[[str], Job | None]
    read_line = _json_job if head[1].startswith("{") else _SwfReader(unit, trace.header).job
    _read(chain([head], filled), read_line, limit, trace)
    return trace


def _read(
    lines: Iterator[tuple[int, str]], read_line: Callable[[str], Job | None], limit: int | None, trace: Trace
) -> None:
    seen: dict[int, int] = {}
    for number, line in lines:
        if limit is not None and len(trace.jobs) >= limit:
            return
        try:
            job = read_line(line)
            if job is None:
                continue
            if job.id in seen:
                raise _FieldError(f"job id: {job.id} is already that of line {seen[job.id]}")
        except _Skip as exc:
            trace.skipped[str(exc)] = trace.skipped.get(str(exc), 0) + 1
            continue
        except ValueError as exc:
            trace.faults.append(Fault(number, str(exc)))
            continue
        seen[job.id] = number
        trace.jobs.append(job)


class _SwfReader:
    """Keeps the header, and one request for all jobs of the same size."""

    def __init__(self, unit: str, header: dict[str, str]) -> None:
        self.unit = unit
        self.header = header
        self.requests: dict[int, list[Request]] = {}

    def job(self, line: str) -> Job | None:
        if line.startswith(";"):
            found = swf.header(line)
            if found is not None:
                self.header.setdefault(*found)
            return None
        record = swf.decode(line)
        if record.status in (swf.PART, swf.LAST_PART_COMPLETED, swf.LAST_PART_FAILED):
            raise _Skip("part of a job that has a line of its own")
        if record.status == swf.CANCELLED and record.run <= 0:
            raise _Skip("cancelled before it ran")
        if record.run < 0:
            raise _Skip("its run time is not known")
        size = record.processors if record.processors > 0 else record.allocated
        if size <= 0:
            raise swf.SwfError(8, "must be known, or else field 5 (allocated processors): neither says how many")
        resources = self.requests.get(size)
        if resources is None:
            resources = self.requests[size] = _processors(self.unit, size)
        runtime = max(1, ceil(record.run))
        limit = ceil(record.limit) if record.limit > 0 else runtime
        user = str(record.user) if record.user >= 0 else ""
        return Job(record.job, floor(record.submit), runtime, JobRequest(resources, limit), user=user)


def _processors(unit: str, count: int) -> list[Request]:
    if unit == "node":
        return [Request("node", Count(count), exclusive=True)]
    return [Request("slot", Count(count), [Request("core", Count(1))], label="task")]


def _json_job(line: str) -> Job:
    try:
        found = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as exc:
        raise _FieldError(f"not JSON: {exc}") from None
    if not isinstance(found, dict):
        raise _FieldError("must be an object")
    for name in ("id", "jobspec", "submit", "runtime"):
        if name not in found:
            raise _FieldError(f"{name}: missing")
    request, limit = _request(found["jobspec"])
    urgency = found.get("urgency", URGENCY_DEFAULT)
    if not isinstance(urgency, int) or isinstance(urgency, bool) or not URGENCY_HOLD <= urgency <= URGENCY_EXPEDITE:
        raise _FieldError(f"urgency: must be an integer from {URGENCY_HOLD} to {URGENCY_EXPEDITE}, not {urgency!r}")
    user = found.get("user", "")
    if isinstance(user, bool) or not isinstance(user, str | int):
        raise _FieldError(f"user: must be a name or a number, not {user!r}")
    return Job(
        _id(found["id"]),
        floor(_seconds(found, "submit")),
        max(1, ceil(_seconds(found, "runtime"))),
        JobRequest(request.resources, limit, request.constraint),
        urgency,
        str(user),
    )


def _request(jobspec: Any) -> tuple[JobRequest, int]:
    """A jobspec's request, and its time limit rounded up (0: none)."""
    attributes: Any = jobspec.get("attributes") if isinstance(jobspec, dict) else None
    system: Any = attributes.get("system") if isinstance(attributes, dict) else None
    for name, value in (("attributes", attributes), ("attributes.system", system)):
        if not isinstance(value, dict | None):
            raise _FieldError(f"jobspec: {name}: must be an object")
    try:
        return parse_jobspec(jobspec), ceil((system or {}).get("duration", 0))
    except RequestError as exc:
        raise _FieldError(f"jobspec: {exc}") from None


def _id(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    try:
        return jobid.parse(value)
    except (ValueError, TypeError, AttributeError):
        raise _FieldError(f"id: must be a job id, not {value!r}") from None


def _seconds(found: dict[str, Any], name: str) -> float:
    value = found[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_SECONDS:
        raise _FieldError(f"{name}: must be a number of seconds from 0 to 10^15, not {value!r}")
    return value


def synthetic(count: int, seed: int, processors: int) -> Iterator[str]:
    """The lines of a synthetic trace in Standard Workload Format: `count` jobs for a machine.

    The machine has `processors` processors. The same seed always gives the same lines. The distribution is that of
    published logs: mostly small jobs whose sizes are powers of two, lengths over several orders of magnitude, limits
    that are round numbers well above the actual runtime, a few users with most of the jobs, and enough work to keep the
    machine about full.
    """
    rng = random.Random(seed)
    yield swf.encode_header("Version", "2.2")
    yield swf.encode_header("Computer", f"synthetic, seed {seed}")
    yield swf.encode_header("MaxJobs", count)
    yield swf.encode_header("MaxProcs", processors)
    sizes = [_size(rng, processors) for _ in range(count)]
    runs = [int(min(_LONGEST, max(_SHORTEST, rng.lognormvariate(6.5, 1.5)))) for _ in range(count)]
    span = sum(size * run for size, run in zip(sizes, runs, strict=True)) / (_LOAD * processors)
    arrivals = sorted(rng.random() * span for _ in range(count))
    for i in range(count):
        user = int(_USERS * rng.random() ** 3)
        limit = rng.choice([60 * minutes for minutes in _LIMITS if 60 * minutes >= runs[i]][:4])
        yield swf.encode(
            swf.Record(job=i + 1, submit=int(arrivals[i]), run=runs[i], processors=sizes[i], limit=limit, user=user)
        )


def _size(rng: random.Random, processors: int) -> int:
    """A size of at most half the machine: full-machine jobs would dominate all waits."""
    exponent = min(rng.expovariate(0.5), max(0, processors.bit_length() - 2))
    return 2 ** int(exponent) if rng.random() < 0.75 else int(2**exponent)
