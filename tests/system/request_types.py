"""Payloads of other types than services take, for every method of every service: run inside an instance of two.

Prints the seed, then a line for each request that was not answered as it must be, and what no table has.
"""

from __future__ import annotations

import errno
import json
import random
import sys
from typing import Any

from headrace.formats.spec.message import MessageError
from headrace.formats.spec.requests import broker, execution, jobs, kvs, resource, sched
from headrace.wire.client.handle import Handle, Rpc

NODES = (0, 1)
# Answered with a text, not with JSON.
TEXTS = ("resource.topo-get",)
TABLES: dict[str, Any] = {
    "api": execution.API,
    "attr": broker.ATTR,
    "barrier": execution.BARRIER,
    "broker": broker.BROKER,
    "config": broker.CONFIG,
    "content": kvs.CONTENT,
    "content-backing": kvs.CONTENT_BACKING,
    "cron": execution.CRON,
    "event": broker.EVENT,
    "feasibility": sched.FEASIBILITY,
    "groups": broker.GROUPS,
    "job-exec": execution.JOB_EXEC,
    "job-info": jobs.JOB_INFO,
    "job-ingest": jobs.JOB_INGEST,
    "job-list": jobs.JOB_LIST,
    "job-manager": jobs.JOB_MANAGER,
    "job-store": jobs.JOB_STORE,
    "kvs": kvs.KVS,
    "kvs-watch": kvs.KVS_WATCH,
    "log": broker.LOG,
    "module": broker.MODULE,
    "overlay": broker.OVERLAY,
    "resource": resource.LEADER,
    "rexec": execution.REXEC,
    "runat": broker.RUNAT,
    "sched": sched.SCHED,
    "sched-fluxion-qmanager": sched.FLUXION_QMANAGER,
    "sched-fluxion-resource": sched.FLUXION_RESOURCE,
    "service": broker.SERVICE,
    "shutdown": broker.SHUTDOWN,
    "state-machine": broker.STATE_MACHINE,
}
# Services without methods of their own.
EMPTY = {"connector-local", "heartbeat", "sched-simple", "sched-graph"}
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
VALUES: list[Any] = [None, True, 5, 1.5, "x", [], ["x"], [[5]], {}, {"a": 1}, DEEP]
NO_OBJECTS = [b"[]", b"5", b'"x"', b"null", b"nul", b"\xff\xfe", b"{" * 5000, b'{"a":' * 100_000, b'{"a": 1} x']
# Requests that a fuzzer of well-formed payloads must not make: they end, change or block what the others need.
DRASTIC = {
    *("shutdown.start", "overlay.disconnect-subtree", "module.remove", "module.load", "config.load", "config.reload"),
    *("broker.setenv", "broker.disconnect", "broker.heartbeat-lost"),
    *("content.store", "log.append", "log.forward", "job-list.job-state-pause"),
    *("attr.set", "attr.rm", "event.publish", "rexec.exec", "runat.push", "resource.reload", "resource.gather"),
    # Between parts of one instance, which trust each other beyond the types.
    *("groups.update", "job-exec.launch", "job-exec.up", "job-exec.down", "job-exec.peer", "job-exec.start"),
    *("job-manager.submit", "job-manager.sched-hello", "job-manager.sched-ready"),
    *("job-manager.sched-successors", "job-manager.exec-hello", "job-store.append"),
    *("sched.alloc", "sched.free", "sched.inherit", "sched.prioritize", "resource.acquire", "resource.acquire-mute"),
    *("resource.monitor-force-down", "resource.drain", "job-manager.queue-enable", "job-manager.queue-start"),
}


def sample(types: Any, inside: Any) -> Any:
    """A value of a kind."""
    if types is None:
        return 0
    if isinstance(inside, tuple):
        return {name: sample(kind, within) for name, kind, _needed, within in inside}
    first = types[0]
    return first() if not isinstance(inside, list) else [sample(*inside[0])]


def wrong_values(types: Any, inside: Any, needed: bool) -> list[Any]:
    if types is None:
        return []
    found = [one for one in VALUES if type(one) not in types and (needed or one is not None)]
    if isinstance(inside, list):
        found += [[one] for one in wrong_values(*inside[0], True)]
    if isinstance(inside, tuple):
        good = sample(types, inside)
        found += [{}] if any(kind[2] for kind in inside) else []
        for name, kind, must, within in inside:
            found += [{**good, name: one} for one in wrong_values(kind, within, must)]
    return found


def wrong_bodies(form: Any) -> list[Any]:
    good = {name: sample(types, inside) for name, types, _needed, inside in form}
    found: list[Any] = []
    for name, types, needed, inside in form:
        found += [{**good, name: one} for one in wrong_values(types, inside, needed)]
        if needed:
            found.append({key: one for key, one in good.items() if key != name})
    return [*found, None, {}] if any(field[2] for field in form) else found


def right_value(dice: random.Random, types: Any, inside: Any) -> Any:
    if types is None:
        return dice.choice(VALUES)
    if isinstance(inside, tuple):
        return right_body(dice, inside)
    if isinstance(inside, list):
        return [right_value(dice, *inside[0]) for _ in range(dice.randrange(4))]
    pools: dict[type, list[Any]] = {
        str: ["", "x", "0", "0-1", "primary", ".", "a.b", "\0", "ƒ1", "x" * 5000, "guest.output", "eventlog"],
        int: [-1, 0, 1, 2, 64, 2**31, 2**32 - 1, 2**63, 2**64 - 1, -(2**63), 10**30],
        float: [-1.0, 0.0, 0.5, 1e300],
        bool: [False, True],
        dict: [{}, {"a": 1}, {"and": [{}]}, {"data": "x", "ver": 1, "type": "val"}, {"version": 1, "execution": {}}],
        list: [[], [1], ["x"], [[1, 2]], [{}], [None], DEEP],
    }
    return dice.choice(pools[dice.choice([one for one in types if one in pools])])


def right_body(dice: random.Random, form: Any) -> dict[str, Any]:
    return {
        name: right_value(dice, types, inside) for name, types, needed, inside in form if needed or dice.random() < 0.5
    }


class Fuzz:
    def __init__(self) -> None:
        self.handle = Handle()
        self.sent = 0

    def refused(self, topic: str, node: int, payloads: list[bytes | None]) -> None:
        """Payloads of another form: EPROTO, with a text that names the method."""
        self.sent += len(payloads)
        calls = [(payload, self.handle.rpc(topic, nodeid=node, payload=payload)) for payload in payloads]
        for payload, call in calls:
            self._refused(topic, node, payload, call)

    def _refused(self, topic: str, node: int, payload: bytes | None, call: Rpc) -> None:
        try:
            answer: Any = call.get(60)
        except TimeoutError:
            answer = "nothing"
        except OSError as exc:
            if exc.errno == errno.EPROTO and str(exc.strerror).startswith(f"{topic}: "):
                return
            if exc.errno == errno.ENOSYS and node:
                # Most services are on the leader alone.
                return
            answer = exc
        print(f"NOT REFUSED {topic} on {node}: {(payload or b'')[:80]!r}: {answer}", flush=True)

    def answered(self, topic: str, body: dict[str, Any]) -> None:
        """A payload of the right types with any values: whatever the answer is, it is not an internal error."""
        self.sent += 1
        call = self.handle.rpc(topic, body)
        try:
            call.get(0.05)
        except MessageError:
            if topic not in TEXTS:
                raise
        except TimeoutError:
            # It waits for something; the handle that asked goes, and the service forgets it.
            self.handle.close()
            self.handle = Handle()
        except OSError as exc:
            if "internal error" in str(exc):
                print(f"INTERNAL ERROR {topic}: {json.dumps(body)[:200]}: {exc}", flush=True)


def main() -> None:
    seed, rounds = int(sys.argv[1]), int(sys.argv[2])
    dice = random.Random(seed)
    fuzz = Fuzz()
    listed = {
        name
        for node in NODES
        for module in fuzz.handle.rpc("module.list", nodeid=node).get()["mods"]
        for name in (module["services"] or [module["name"]])
    }
    for name in sorted(listed - TABLES.keys() - EMPTY):
        print(f"WITHOUT FORMS {name}")
    for service, table in TABLES.items():
        for method, form in table.items():
            if form is None:
                continue
            topic = f"{service}.{method}"
            payloads = [None if body is None else json.dumps(body).encode() for body in wrong_bodies(form)]
            for node in NODES:
                fuzz.refused(topic, node, payloads + NO_OBJECTS)
    print(f"{fuzz.sent} refused")
    typed = [
        (f"{service}.{method}", form)
        for service, table in TABLES.items()
        for method, form in table.items()
        if form is not None and f"{service}.{method}" not in DRASTIC
    ]
    for _ in range(rounds):
        topic, form = dice.choice(typed)
        fuzz.answered(topic, right_body(dice, form))
    print(f"{fuzz.sent} sent, broker {Handle().attr_get('rank')} of {Handle().attr_get('size')} up", flush=True)


if __name__ == "__main__":
    main()
