"""What `/v2` changes of a job, and what it asks before: requests to the job manager."""

from __future__ import annotations

import base64
import binascii
import errno
import json
from collections.abc import Mapping
from typing import Any

from headrace.api import jobs
from headrace.api.broker_link import AWAY, BrokerLink, BrokerUnreachable
from headrace.api.fields import BadFields, checked_text
from headrace.api.v2 import submission
from headrace.api.v2.fields import Field
from headrace.spec import jobid
from headrace.spec.jobspec_build import signal_number

_DURATION = "attributes.system.duration"


def _signal(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("must be the name or the number of a signal")
    return signal_number(str(value))


CANCEL = (Field("note", checked_text, {"type": "string"}, "Why, for the job's eventlog"),)
KILL = (Field("signal", _signal, {"type": ["string", "integer"]}, "By name or number (default: SIGTERM)"),)
URGENCY = (submission.URGENCY,)


async def change(link: BrokerLink, id: int, method: str, what: Mapping[str, Any]) -> dict[str, Any] | None:
    """Ask the job manager about a job that has not ended. Raises NoSuchJob, JobHasEnded."""
    try:
        answer: dict[str, Any] | None = await link.call(f"job-manager.{method}", {"id": id, **what})
    except OSError as exc:
        if exc.errno == errno.ENOENT:
            await jobs.one(link, id)
            raise jobs.JobHasEnded(f"{jobid.encode(id)} has ended") from None
        raise await _as_told(link, id, exc) from None
    return answer


async def _as_told(link: BrokerLink, id: int, exc: OSError) -> Exception:
    """A refusal as the user is told of it: that of another's job, or of one that has ended, is told as what it is."""
    if isinstance(exc, BrokerUnreachable) or link.identity is None:
        return exc
    job = await jobs.one(link, id, ["userid", "state"])
    if exc.errno == errno.EPERM and job["userid"] != link.identity.userid:
        # As for an id that no job has.
        return jobs.NoSuchJob(f"no job has the id {jobid.encode(id)}")
    return exc


async def updates(link: BrokerLink, id: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """What `job-manager.update` is asked for: values by path, where the names of attributes may be short. A duration of
    `+30m` or `-30m` changes the present one. Raises BadFields, NoSuchJob.
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


async def check(link: BrokerLink, jobspec: Mapping[str, Any]) -> None:
    """Ask the scheduler whether such a job can ever run. Raises Refused."""
    try:
        await link.call("feasibility.check", {"jobspec": jobspec})
    except BrokerUnreachable:
        raise
    except OSError as exc:
        if exc.errno in AWAY:
            raise
        raise jobs.Refused([str(exc.strerror)], exc.errno) from None
    except (ValueError, RecursionError) as exc:
        raise jobs.Refused([str(exc)]) from None


async def submitted(link: BrokerLink, id: int) -> dict[str, Any]:
    """The jobspec of a job as it was submitted, with its environment and files. Raises NoSuchJob, Refused."""
    signed = await jobs.kept(link, id, "J")
    try:
        # HEADER.PAYLOAD.SIGNATURE, the payload in base64 (RFC 15).
        found = json.loads(base64.b64decode(signed.split(".")[1]))
    except (IndexError, ValueError, binascii.Error):
        raise jobs.Refused([f"what is kept of {jobid.encode(id)} cannot be submitted once more"]) from None
    found["attributes"].setdefault("system", {})
    # The mark of a key is that of one job.
    (found["attributes"].get("user") or {}).pop("idempotency-key", None)
    return dict(found)
