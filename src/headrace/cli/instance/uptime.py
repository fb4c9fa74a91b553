"""`flux uptime`: the instance's state, age, owner, depth and size, and nodes and queues out of use."""

from __future__ import annotations

import time

from headrace.cli.common.getopts import Command
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

PREFIX = "flux-uptime: "

_COMMAND = Command("flux-uptime", "[OPTIONS]", "Print the instance's state, age, owner, depth and size")


def main(argv: List[str]) -> int:
    _COMMAND.parse(argv).need(0, 0)
    handle = Handle()
    owner = handle.rpc("attr.get", {"name": "security.owner"})
    size = handle.rpc("attr.get", {"name": "size"})
    level = handle.rpc("attr.get", {"name": "instance-level"})
    machine = handle.rpc("state-machine.get")
    start = handle.rpc("attr.get", {"name": "broker.starttime"}, 0)
    state = machine.get()
    now = time.time()
    from headrace.formats.spec import duration
    from headrace.wire.query.job_info import username

    age = now - float(start.get()["value"]) if state["state"] == "run" else state["duration"]
    line = (
        f" {time.strftime('%H:%M:%S', time.localtime(now))} {state['state']} {_short(duration.encode(age))},  "
        f"owner {username(owner.get()['value'])},  depth {level.get()['value']},  size {size.get()['value']}"
    )
    notes = _nodes(handle) if state["state"] == "run" else ""
    print(line + notes)
    problems = _queues(handle) if state["state"] == "run" else []
    if problems:
        print("  " + ",  ".join(problems))
    return 0


def _short(text: str) -> str:
    """A duration with two significant digits and its unit: 8.8s, 1.4m, 12h."""
    number = text.rstrip("smhd")
    value = float(number)
    return f"{value:.2g}{text[len(number) :]}" if value < 100 else f"{value:.0f}{text[len(number) :]}"


def _nodes(handle: Handle) -> str:
    """The numbers of drained and offline nodes, if there are any."""
    try:
        status: Any = handle.rpc("resource.status", nodeid=0).get()
    except OSError:
        return ""
    from headrace.formats.spec.idset import Idset

    drained = len([rank for ids in status["drain"] for rank in Idset.parse(ids)])
    offline = len(Idset.parse(status["offline"]))
    return "".join([f",  {count} {word}" for count, word in ((drained, "drained"), (offline, "offline")) if count])


def _queues(handle: Handle) -> List[str]:
    """Notes on queues that are disabled or stopped."""
    names = handle.rpc("job-manager.queue-list", nodeid=0).get()["queues"]
    calls = [
        (name, handle.rpc("job-manager.queue-status", {"name": name} if name else {}, 0)) for name in names or [""]
    ]
    disabled: List[str] = []
    stopped: List[str] = []
    for name, call in calls:
        status = call.get()
        if not status["enable"]:
            disabled.append(name)
        if not status["start"]:
            stopped.append(name)
    notes = []
    if disabled:
        notes.append("submit disabled" if disabled == [""] else f"submit disabled: {','.join(disabled)}")
    if stopped:
        notes.append("scheduler stopped" if stopped == [""] else f"scheduler stopped: {','.join(stopped)}")
    return notes
