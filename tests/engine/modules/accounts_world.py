"""Rows of accounting tables, and a core whose policy has them."""

from __future__ import annotations

from typing import Any

from core_world import World, jobspec

from headrace.engine.modules.job_manager.mf_priority import MultiFactorPolicy
from headrace.sched.accounting.multifactor import MultiFactor

MANY = 2147483647


def association(userid: int, bank: str, **changes: Any) -> dict[str, Any]:
    row = {
        "userid": userid,
        "bank": bank,
        "def_bank": "A",
        "fairshare": 0.5,
        "max_running_jobs": 5,
        "max_active_jobs": 100,
        "queues": "batch,debug",
        "active": 1,
        "projects": "*",
        "def_project": "*",
        "max_nodes": MANY,
        "max_cores": MANY,
        "max_sched_jobs": MANY,
    }
    return {**row, **changes}


def queue(name: str, **changes: Any) -> dict[str, Any]:
    row = {
        "queue": name,
        "min_nodes_per_job": 1,
        "max_nodes_per_job": 1,
        "max_time_per_job": 60,
        "priority": 0,
        "max_running_jobs": 100,
        "max_nodes_per_assoc": MANY,
        "max_sched_jobs": MANY,
        "max_sched_nodes_per_assoc": MANY,
        "max_sched_cores_per_assoc": MANY,
    }
    return {**row, **changes}


def nodes(count: int, **system: Any) -> dict[str, Any]:
    """A jobspec of `count` nodes."""
    spec = jobspec(**system)
    return {**spec, "resources": [{"type": "node", "count": count, "with": spec["resources"]}]}


def policy(config: dict[str, Any], owner: int = 0, **options: Any) -> MultiFactorPolicy:
    factors = MultiFactor(owner, **options)
    factors.load(config)
    return MultiFactorPolicy(factors)


def world_with(config: dict[str, Any], names: list[str] | None = None, **options: Any) -> World:
    """A world whose policy has the tables `config`. Its queues are started."""
    world = World(names)
    world.core.set_queues_started(names or [], True, None, True)
    world.core.steps.replace(policy(config, **options))
    world.flush()
    return world
