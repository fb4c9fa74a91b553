"""`headrace simulate --record`: writes the past jobs of an instance as a trace that can be simulated.

The times of submission, urgency changes, start and finish are in a job's eventlog (RFC 21), its request is in the
jobspec. Environment and files are left out, because schedulers do not use them. Users are written by name, as
`flux account export-db -F` writes them.
"""

from __future__ import annotations

import json

from headrace.formats.spec import eventlog
from headrace.wire.query.job_info import username
from headrace.wire.query.listing import Query, list_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, TextIO

    from headrace.formats.spec.eventlog import Event
    from headrace.wire.client.handle import Handle

# Number of concurrent requests.
_BATCH = 64
# Flags of RFC 41: return keys as decoded objects, and with the job's updates applied.
_DECODE, _CURRENT = 1, 2
_LEFT_OUT = ("environment", "files")


def record(handle: Handle, file: TextIO) -> Dict[str, int]:
    """Write a line for each inactive job that ran, in order of submission; returns counts of jobs."""
    query = Query(count=0)
    query.filter("inactive")
    ids = sorted(job["id"] for job in list_jobs(handle, query, []))
    lines = [line_of(*found) for found in _lookup(handle, ids)]
    kept = sorted((line for line in lines if line is not None), key=lambda line: float(line["submit"]))
    for line in kept:
        file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    return {"written": len(kept), "never ran": len(lines) - len(kept)}


def _lookup(handle: Handle, ids: List[int]) -> Iterator[Any]:
    """(id, jobspec, eventlog) of each job."""
    for at in range(0, len(ids), _BATCH):
        calls = [
            handle.rpc("job-info.lookup", {"id": id, "keys": ["jobspec", "eventlog"], "flags": _DECODE | _CURRENT})
            for id in ids[at : at + _BATCH]
        ]
        for call in calls:
            found = call.get()
            yield found["id"], found["jobspec"], eventlog.decode(found["eventlog"])


def line_of(id: int, jobspec: Dict[str, Any], events: List[Event]) -> Optional[Dict[str, Any]]:
    """The line of a job in the trace, None if it never ran."""
    line: Dict[str, Any] = {"id": id, "urgency": 16}
    started: Optional[float] = None
    for event in events:
        context = event.context or {}
        if event.name == "submit":
            line.update(user=username(context["userid"]), submit=event.timestamp, urgency=context["urgency"])
        elif event.name == "urgency" and started is None:
            line["urgency"] = context["urgency"]
        elif event.name == "start":
            started = line["start"] = event.timestamp
        elif event.name in ("finish", "clean") and started is not None and "runtime" not in line:
            line["runtime"] = round(event.timestamp - started, 6)
    if "runtime" not in line:
        return None
    attributes = jobspec.get("attributes") or {}
    system = {key: value for key, value in (attributes.get("system") or {}).items() if key not in _LEFT_OUT}
    line["jobspec"] = {**jobspec, "attributes": {**attributes, "system": system}}
    return line
