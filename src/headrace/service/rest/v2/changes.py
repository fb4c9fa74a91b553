"""Requests of `/v2` that change a job, translated to requests to the job manager."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.formats.spec.jobspec_build import signal_number
from headrace.service import jobs, submission
from headrace.service.broker_link import BrokerLink
from headrace.service.fields import BadFields, Field, checked_text
from headrace.service.rest.v2.idempotency import MARK

_DURATION = "attributes.system.duration"


def _signal(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("must be the name or the number of a signal")
    try:
        return signal_number(str(value))
    except ValueError:
        raise ValueError(f"must be the name or the number of a signal, such as USR1 or 10, not {value!r:.60}") from None


CANCEL = (Field("note", checked_text, {"type": "string"}, "Why, for the job's eventlog"),)
KILL = (Field("signal", _signal, {"type": ["string", "integer"]}, "By name or number (default: SIGTERM)"),)
URGENCY = (submission.URGENCY,)


async def updates(link: BrokerLink, id: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """The updates for `job-manager.update`: values by jobspec path. Raises BadFields, NoSuchJob.

    A key may be the short name of an attribute. A duration of `+30m` or `-30m` changes the current duration.
    """
    if not given:
        raise BadFields([("updates", "must be an object of keys and values, with one at least")])
    found = {}
    for key, value in given.items():
        path = _path(key)
        found[path] = await _duration(link, id, value) if path == _DURATION else value
    return found


def _path(key: str) -> str:
    if key == "name":
        return "attributes.system.job.name"
    return key if key.startswith(("attributes.", "resources.", "tasks.")) else f"attributes.system.{key}"


async def _duration(link: BrokerLink, id: int, value: Any) -> float:
    sign = value[:1] if isinstance(value, str) and value[:1] in ("+", "-") else ""
    try:
        seconds = submission.limit(value[1:] if sign else value)
    except ValueError as exc:
        raise BadFields([("duration", str(exc))]) from None
    if not sign:
        return seconds
    present = float(json.loads(await jobs.kept(link, id, "jobspec"))["attributes"]["system"].get("duration", 0))
    if not present:
        raise BadFields([("duration", f"cannot be changed by {value}: the job has no time limit")])
    changed = present + (seconds if sign == "+" else -seconds)
    if changed <= 0:
        raise BadFields([("duration", f"cannot be changed by {value}: the time limit would be {changed} s")])
    return changed


async def submitted(link: BrokerLink, id: int) -> dict[str, Any]:
    """The jobspec of a job as it was submitted, with its environment and files. Raises NoSuchJob."""
    jobspec: dict[str, Any] = (await jobs.lookup(link, id, ["J"]))["J"]
    jobspec["attributes"].setdefault("system", {})
    # The mark of an idempotency key belongs to one job, so the copy must not have it.
    (jobspec["attributes"].get("user") or {}).pop(MARK, None)
    return jobspec
