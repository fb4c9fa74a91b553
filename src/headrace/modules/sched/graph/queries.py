"""What users ask the graph scheduler under Fluxion's service names: find, info, properties, status, parameters.

Shapes are those of Fluxion's `flux ion-resource` and its two modules. Nothing here allocates.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.graph import find
from headrace.graph.usage import Allocation
from headrace.graph.writers import WRITERS
from headrace.modules.sched.graph.pool import Pool
from headrace.modules.sched.graph.settings import QMANAGER, RESOURCE, Settings
from headrace.spec.idset import Idset
from headrace.spec.message import Message
from headrace.spec.requests.sched import FLUXION_QMANAGER, FLUXION_RESOURCE

_FIND_FORMATS = ("rv1_nosched", "rv1", "jgf", "rlite", "simple", "pretty_simple")


def register(
    ctx: ModuleContext,
    pool: Callable[[], Pool],
    settings: Callable[[], Settings],
    now: Callable[[], int],
    changed: Callable[[], None],
    status: Callable[[Message], dict[str, Any]],
    check: Callable[[Message], Any],
) -> None:
    """Provide both services. `status` and `check` answer `sched.resource-status` and `feasibility.check` as well.
    `changed` is told when waiting jobs may have a chance."""
    loaded = time.monotonic()

    def search(msg: Message) -> dict[str, Any]:
        criteria, form = msg.obj["criteria"], msg.obj.get("format") or "rv1_nosched"
        if form not in _FIND_FORMATS:
            raise RpcError(errno.EINVAL, f"format: must be one of {', '.join(_FIND_FORMATS)}, not {form!r}")
        try:
            text = find.listing(pool().scheduler, criteria, WRITERS[form], now())
        except find.ExpressionError as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None
        if "simple" in form:
            return {"R": text}
        return {"R": msgspec.json.decode(text) if text else None}

    def info(msg: Message) -> dict[str, Any]:
        id = msg.obj["jobid"]
        found: Allocation | None = pool().scheduler.jobs.get(id)
        if found is None:
            raise RpcError(errno.ENOENT, f"job {id} holds no resources and is promised none")
        status = "RESERVED" if found.reserved else "ALLOCATED"
        return {"jobid": id, "status": status, "at": found.start, "overhead": 0.0}

    def vertices(path: Any) -> list[int]:
        found = pool().graph.find_path(path) if isinstance(path, str) else []
        if not found:
            raise RpcError(errno.ENOENT, f"Couldn't find {path} in resource graph.")
        return found

    def set_property(msg: Message) -> Any:
        found = vertices(msg.obj["sp_resource_path"])
        key, equals, value = str(msg.obj["sp_keyval"]).partition("=")
        if not (key and equals and value):
            raise RpcError(errno.EINVAL, "Incorrect format. Use PROPERTY=VALUE.")

        for v in found:
            pool().scheduler.set_property(v, key, value)
        pool().touch()
        changed()
        return EMPTY

    def get_property(msg: Message) -> dict[str, Any]:
        key = str(msg.obj["gp_key"])
        properties = pool().graph.properties
        values = [found[key] for v in vertices(msg.obj["gp_resource_path"]) if key in (found := properties.get(v, {}))]
        if not values:
            raise RpcError(errno.ENOENT, f"Property {key} was not found for {msg.obj['gp_resource_path']}.")
        return {"values": values}

    def set_status(msg: Message) -> Any:
        found, status = vertices(msg.obj["resource_path"]), msg.obj["status"]
        if status not in ("up", "down"):
            raise RpcError(errno.EINVAL, f"status: must be up or down, not {status!r}")

        for v in found:
            pool().scheduler.set_status(v, status == "up")
        pool().touch()
        changed()
        return EMPTY

    def resource_stats() -> dict[str, Any]:
        graph = pool().graph
        by_rank: dict[int, int] = {}
        for rank in graph.rank:
            if rank >= 0:
                by_rank[rank] = by_rank.get(rank, 0) + 1
        by_size: dict[str, list[int]] = {}
        for rank, count in by_rank.items():
            by_size.setdefault(str(count), []).append(rank)
        return {
            "V": len(graph),
            "E": len(graph) - 1 + len(graph.edges),
            "by_rank": {_ranks(ranks): int(count) for count, ranks in by_size.items()},
            "load-time": round(pool().load_time, 6),
            "graph-uptime": int(time.monotonic() - loaded),
            "match": {"succeeded": {"njobs": pool().matched}, "failed": {"njobs": pool().refused}},
        }

    def queue_stats() -> dict[str, Any]:
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
                for name, queue in pool().queues.items()
            }
        }

    def resource_params(msg: Message) -> dict[str, Any]:
        asked = settings().asked
        return {
            "params": {
                "match-policy": asked.get("match-policy", settings().match_policy.name),
                "match-format": settings().match_format,
            }
        }

    def queue_params(msg: Message) -> dict[str, Any]:
        found = settings()
        own = {"queue-policy": found.queue.policy, "queue-params": {"queue-depth": found.queue.depth}}
        if found.queue.reservations is not None:
            own["policy-params"] = {"reservation-depth": found.queue.reservations}
        named = {
            name: {"queue-policy": queue.policy, "queue-depth": queue.depth} for name, queue in found.queues.items()
        }
        return {"params": {**own, "queues": named} if named else own}

    ctx.service(
        RESOURCE,
        {
            "find": search,
            "info": info,
            "set_property": set_property,
            "get_property": get_property,
            "set_status": set_status,
            "params": resource_params,
            "status": status,
            "satisfiability": check,
            "stats-get": lambda _msg: resource_stats(),
        },
        open=("find", "info", "get_property", "params", "stats-get", "status", "satisfiability"),
        requests=FLUXION_RESOURCE,
    )
    methods: dict[str, Callable[[Message], Any]] = {"params": queue_params, "stats-get": lambda _msg: queue_stats()}
    ctx.service(QMANAGER, methods, open=methods, requests=FLUXION_QMANAGER)


def _ranks(ranks: list[int]) -> str:
    return Idset(ranks).encode(brackets=len(ranks) > 1)
