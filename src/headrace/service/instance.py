"""What the service asks its broker about the instance: queues and resources, for all interfaces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset import ResourceSet
from headrace.sched.graph.formats import export, jgf, rv1
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


async def resources(link: BrokerLink) -> dict[str, Any]:
    """How much there is in each state, and the nodes: {rank, host, cores, gpus, cores_used, gpus_used, state,
    properties, drain}, with ids as idsets.
    """
    sets, status = await asyncio.gather(_sets(link), link.call("resource.status", nodeid=0))
    everything = sets.state("all")
    down, allocated = sets.state("down").ranks, {node.rank: node for node in sets.state("allocated").nodes()}
    drains = _drains(status.get("drain", {}))
    excluded = Idset.parse(status.get("exclude") or "")
    online = Idset.parse(status.get("online") or "")
    nodes = []
    # Excluded nodes are not the scheduler's.
    known = ResourceSet.from_obj(status["R"]) if status.get("R") else everything
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
        nodes.append(
            {
                **{"rank": node.rank, "host": node.host, "cores": str(node.cores), "gpus": str(node.gpus)},
                **{"cores_used": str(used.cores) if used else "", "gpus_used": str(used.gpus) if used else ""},
                "state": state,
                "properties": [name for name, ranks in known.properties.items() if node.rank in ranks],
                "drain": drain,
            }
        )
    counted = {state: {kind: getattr(sets.state(state), kind) for kind in _KINDS} for state in STATES}
    return {**counted, "nodes": nodes}


def _drains(entries: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    return {
        rank: {"since": entry["timestamp"], "reason": entry.get("reason") or ""}
        for ids, entry in entries.items()
        for rank in Idset.parse(ids)
    }


async def graph(link: BrokerLink) -> bytes:
    """The resource graph as JGF (RFC 4): that of the instance's R, or what follows from its nodes, cores and GPUs."""
    r = (await link.call("resource.status", nodeid=0))["R"]
    if isinstance(r.get("scheduling"), Mapping) and jgf.is_complete(r["scheduling"]):
        return json.dumps(r["scheduling"]).encode()
    return export.jgf(rv1.from_object(r)).encode()


async def _sets(link: BrokerLink) -> SchedulerResources:
    return SchedulerResources(Given(await link.call("resource.sched-status", nodeid=0)))
