"""Requests to the broker about the instance, for all interfaces: queues, nodes and resources."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset import ResourceSet
from headrace.service.broker_link import BrokerLink
from headrace.wire.query.queue_policy import policy_value, seconds
from headrace.wire.query.resource_sets import STATES, Given, SchedulerResources

NODE_STATES = ("free", "allocated", "draining", "drained", "down", "excluded")
_KINDS = ("nnodes", "ncores", "ngpus")


async def queues(link: BrokerLink, own_link: BrokerLink) -> list[dict[str, Any]]:
    """The queues with their state, limits (seconds, None: none) and resources; "" is the anonymous queue."""
    config, sets = await asyncio.gather(own_link.call("config.get"), _sets(link))
    sets.configure(config)
    names = sorted(config.get("queues", {})) or [""]
    asked = [link.call("job-manager.queue-status", {"name": name} if name else {}) for name in names]
    general = config.get("policy", {})
    default = policy_value([general], "jobspec", "defaults", "system", "queue")
    found = []
    for name, status in zip(names, await asyncio.gather(*asked)):
        policies = [config["queues"][name].get("policy", {}) if name else {}, general]
        default_duration = policy_value(policies, "jobspec", "defaults", "system", "duration")
        found.append(
            {
                **{"name": name, "default": not name or name == default},
                **{"enabled": status["enable"], "started": status["start"]},
                **{"disable_reason": status.get("disable_reason"), "stop_reason": status.get("stop_reason")},
                "default_duration": _finite(default_duration),
                "max_duration": _finite(policy_value(policies, "limits", "duration")),
                **{state: {kind: sets.count(state, kind, name) for kind in _KINDS} for state in STATES},
            }
        )
    return found


def _finite(value: Any) -> float | None:
    limit = seconds(value)
    return None if limit == float("inf") else limit


class Node(NamedTuple):
    """A node with its total and its used resources, and its state (one of NODE_STATES).

    `drain` is {since, reason}.
    """

    rank: int
    host: str
    cores: Idset
    gpus: Idset
    cores_used: Idset
    gpus_used: Idset
    state: str
    properties: list[str]
    drain: dict[str, Any] | None


_NOTHING = Idset()


def nodes(status: Mapping[str, Any], sets: SchedulerResources) -> list[Node]:
    """The nodes, from the responses to `resource.status` and `resource.sched-status`."""
    down, allocated = sets.state("down").ranks, {node.rank: node for node in sets.state("allocated").nodes()}
    drains = _drains(status.get("drain", {}))
    excluded = Idset.parse(status.get("exclude") or "")
    online = Idset.parse(status.get("online") or "")
    # The scheduler does not know excluded nodes.
    known = ResourceSet.from_obj(status["R"]) if status.get("R") else sets.state("all")
    found = []
    for node in known.nodes():
        used = allocated.get(node.rank)
        drain = drains.get(node.rank)
        if node.rank in excluded:
            state = "excluded"
        elif drain:
            state = "draining" if used else "drained"
        elif node.rank in down or node.rank not in online:
            state = "down"
        else:
            state = "allocated" if used else "free"
        taken = (used.cores, used.gpus) if used else (_NOTHING, _NOTHING)
        properties = [name for name, ranks in known.properties.items() if node.rank in ranks]
        found.append(Node(node.rank, node.host, node.cores, node.gpus, *taken, state, properties, drain))
    return found


async def all_nodes(link: BrokerLink) -> tuple[list[Node], SchedulerResources]:
    """The nodes, and the scheduler's resource sets."""
    sets, status = await asyncio.gather(_sets(link), link.call("resource.status", nodeid=0))
    return nodes(status, sets), sets


async def resources(link: BrokerLink) -> dict[str, Any]:
    """The amount of resources in each state, and the fields of each Node, with idsets as text."""
    found, sets = await all_nodes(link)
    counted = {state: {kind: getattr(sets.state(state), kind) for kind in _KINDS} for state in STATES}
    texts = ("cores", "gpus", "cores_used", "gpus_used")
    return {
        **counted,
        "nodes": [{**node._asdict(), **{name: str(getattr(node, name)) for name in texts}} for node in found],
    }


def _drains(entries: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    return {
        rank: {"since": entry["timestamp"], "reason": entry.get("reason") or ""}
        for ids, entry in entries.items()
        for rank in Idset.parse(ids)
    }


async def graph(link: BrokerLink) -> bytes:
    """The scheduler's resource graph as JGF (RFC 4)."""
    # These criteria match every vertex.
    criteria = "status=up or status=down"
    found = (await link.call("sched-fluxion-resource.find", {"criteria": criteria, "format": "jgf"}))["R"]
    for node in found["graph"]["nodes"]:
        # `find` writes vertices as in the R of a job that holds all of them, so it marks them exclusive.
        node["metadata"].pop("exclusive", None)
    return json.dumps(found).encode()


async def _sets(link: BrokerLink) -> SchedulerResources:
    return SchedulerResources(Given(await link.call("resource.sched-status", nodeid=0)))
