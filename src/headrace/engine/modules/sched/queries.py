"""The graph scheduler's services with Fluxion's names: find, info, properties, status, parameters.

Payloads are compatible with `flux ion-resource` and Fluxion's two modules. No request here allocates resources.
"""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.broker.module.privacy import guarded, refuse_if_hidden
from headrace.engine.modules.sched.pool import Pool
from headrace.engine.modules.sched.settings import QMANAGER, RESOURCE, Settings
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.sched import FLUXION_QMANAGER, FLUXION_RESOURCE
from headrace.sched.graph import find
from headrace.sched.graph.formats.writers import WRITERS
from headrace.sched.graph.usage import Allocation

_FIND_FORMATS = ("rv1_nosched", "rv1", "jgf", "rlite", "simple", "pretty_simple")

# Criteria whose results reveal nothing about jobs.
_WITHOUT_JOBS = ("status=up", "status=down", "status=up or status=down")


class Host(NamedTuple):
    """The parts of the scheduler that these services use."""

    # Raises RpcError until resources are known.
    pool: Callable[[], Pool]
    settings: Callable[[], Settings]
    # The scheduler's time in seconds since the epoch.
    now: Callable[[], int]
    # Called after a change that may allow pending jobs to start.
    changed: Callable[[], None]
    # Handlers of `sched.resource-status` and `feasibility.check`.
    status: Callable[[Message], dict[str, Any]]
    check: Callable[[Message], Any]


def register(ctx: ModuleContext, host: Host) -> None:
    """Provide both of Fluxion's services."""
    resource = _Resource(host)
    methods: dict[str, Callable[[Message], Any]] = {
        "find": partial(_find, ctx, resource),
        # Guarded, because the response is about a job.
        "info": guarded(ctx, resource.info),
        "set_property": resource.set_property,
        "get_property": resource.get_property,
        "set_status": resource.set_status,
        "params": resource.params,
        "status": host.status,
        "satisfiability": host.check,
        "stats-get": resource.stats,
    }
    for_guests = ("find", "info", "get_property", "params", "stats-get", "status", "satisfiability")
    ctx.service(RESOURCE, methods, open=for_guests, requests=FLUXION_RESOURCE)
    methods = {
        "params": lambda _msg: _queue_params(host.settings()),
        "stats-get": lambda _msg: _queue_stats(host.pool()),
    }
    ctx.service(QMANAGER, methods, open=methods, requests=FLUXION_QMANAGER)


def _find(ctx: ModuleContext, resource: _Resource, msg: Message) -> dict[str, Any]:
    """Find vertices.

    With `access.private-mode`, guests may only use criteria that reveal nothing about jobs.
    """
    if msg.obj["criteria"] not in _WITHOUT_JOBS:
        refuse_if_hidden(ctx, msg)
    return resource.find(msg)


class _Resource:
    """The methods of Fluxion's resource module."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loaded = time.monotonic()

    def find(self, msg: Message) -> dict[str, Any]:
        criteria, form = msg.obj["criteria"], msg.obj.get("format") or "rv1_nosched"
        if form not in _FIND_FORMATS:
            raise RpcError(errno.EINVAL, f"format: must be one of {', '.join(_FIND_FORMATS)}, not {form!r}")
        try:
            text = find.listing(self._host.pool().scheduler, criteria, WRITERS[form], self._host.now())
        except find.ExpressionError as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None
        if "simple" in form:
            return {"R": text}
        return {"R": msgspec.json.decode(text) if text else None}

    def info(self, msg: Message) -> dict[str, Any]:
        id = msg.obj["jobid"]
        found: Allocation | None = self._host.pool().scheduler.jobs.get(id)
        if found is None:
            raise RpcError(errno.ENOENT, f"job {id} has neither an allocation nor a reservation")
        status = "RESERVED" if found.reserved else "ALLOCATED"
        return {"jobid": id, "status": status, "at": found.start, "overhead": 0.0}

    def set_property(self, msg: Message) -> Any:
        found = self._vertices(msg.obj["sp_resource_path"])
        key, equals, value = str(msg.obj["sp_keyval"]).partition("=")
        if not (key and equals and value):
            raise RpcError(errno.EINVAL, "Incorrect format. Use PROPERTY=VALUE.")
        for v in found:
            self._host.pool().scheduler.set_property(v, key, value)
        return self._touched()

    def get_property(self, msg: Message) -> dict[str, Any]:
        key, path = str(msg.obj["gp_key"]), msg.obj["gp_resource_path"]
        properties = self._host.pool().graph.properties
        values = [found[key] for v in self._vertices(path) if key in (found := properties.get(v, {}))]
        if not values:
            raise RpcError(errno.ENOENT, f"Property {key} was not found for {path}.")
        return {"values": values}

    def set_status(self, msg: Message) -> Any:
        found, status = self._vertices(msg.obj["resource_path"]), msg.obj["status"]
        if status not in ("up", "down"):
            raise RpcError(errno.EINVAL, f"status: must be up or down, not {status!r}")
        for v in found:
            self._host.pool().scheduler.set_status(v, status == "up")
        return self._touched()

    def params(self, _msg: Message) -> dict[str, Any]:
        settings = self._host.settings()
        policy = settings.asked.get("match-policy", settings.match_policy.name)
        return {"params": {"match-policy": policy, "match-format": settings.match_format}}

    def stats(self, _msg: Message) -> dict[str, Any]:
        pool = self._host.pool()
        by_rank = Counter(rank for rank in pool.graph.rank if rank >= 0)
        by_size: dict[int, list[int]] = {}
        for rank, count in by_rank.items():
            by_size.setdefault(count, []).append(rank)
        return {
            "V": len(pool.graph),
            "E": len(pool.graph) - 1 + len(pool.graph.edges),
            "by_rank": {_ranks(ranks): count for count, ranks in by_size.items()},
            "load-time": round(pool.load_time, 6),
            "graph-uptime": int(time.monotonic() - self._loaded),
            "match": {"succeeded": {"njobs": pool.matched}, "failed": {"njobs": pool.refused}},
        }

    def _vertices(self, path: Any) -> list[int]:
        found = self._host.pool().graph.find_path(path) if isinstance(path, str) else []
        if not found:
            raise RpcError(errno.ENOENT, f"Couldn't find {path} in resource graph.")
        return found

    def _touched(self) -> Any:
        self._host.pool().touch()
        self._host.changed()
        return EMPTY


def _queue_stats(pool: Pool) -> dict[str, Any]:
    return {
        "queues": {
            name or "default": {
                "policy": queue.policy.name,
                "queue_depth": queue.depth,
                "action_counts": {
                    "pending": len(queue.pending),
                    "running": len(queue.running),
                    "reserved": len(queue.planned),
                },
            }
            for name, queue in pool.queues.items()
        }
    }


def _queue_params(settings: Settings) -> dict[str, Any]:
    own = {"queue-policy": settings.queue.policy, "queue-params": {"queue-depth": settings.queue.depth}}
    if settings.queue.reservations is not None:
        own["policy-params"] = {"reservation-depth": settings.queue.reservations}
    named = {name: {"queue-policy": one.policy, "queue-depth": one.depth} for name, one in settings.queues.items()}
    return {"params": {**own, "queues": named} if named else own}


def _ranks(ranks: list[int]) -> str:
    return Idset(ranks).encode(brackets=len(ranks) > 1)
