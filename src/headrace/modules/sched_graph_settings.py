"""How the graph scheduler is configured: Fluxion's tables and keys, and the same keys as module arguments.

Kept apart from the module because a reloaded configuration is read as a whole before anything of it is taken, and
because every refusal has to name the key, what it was and what would be right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from headrace.graph.policies import POLICIES as MATCH_POLICIES
from headrace.graph.policies import Policy
from headrace.queueing import POLICIES as QUEUE_POLICIES
from headrace.spec import duration

QMANAGER = "sched-fluxion-qmanager"
RESOURCE = "sched-fluxion-resource"
MATCH_FORMATS = ("rv1", "rv1_nosched", "rv1_shorthand")

_QUEUE_PARAMS = ("queue-depth", "max-queue-depth")
_POLICY_PARAMS = ("reservation-depth", "max-reservation-depth")
_CUSTOM = ("policy", "node_centric", "node_exclusive", "set_stop_on_1_matches")
# Of Fluxion's keys those that tune what this implementation does otherwise: accepted, without effect.
_NO_EFFECT = frozenset(
    {"load-file", "load-format", "load-allowlist", "reserve-vtx-vec", "prune-filters", "update-interval"}
)


class SettingsError(ValueError):
    """A setting that cannot be used: the message names the key, its value and what would be right."""


class QueueSettings(NamedTuple):
    """One queue: the policy, how many jobs a pass looks at to backfill, how many are promised a start.

    `reservations` None leaves it to the policy.
    """

    policy: str = "fcfs"
    depth: int = 500
    reservations: int | None = None


class Settings(NamedTuple):
    """Everything that is configured. `limit` is how many requests the job manager sends at a time, 0 any number.

    `asked` has the texts as they were given, by key, which is what `params` shows.
    """

    queue: QueueSettings
    queues: dict[str, QueueSettings]
    match_policy: Policy
    match_format: str
    limit: int
    asked: dict[str, str]
    unknown: tuple[str, ...]
    # Seconds after which half of what users have used is forgotten; 0: nobody asks what they have.
    fair_share: float = 0.0

    def for_queue(self, name: str) -> QueueSettings:
        return self.queues.get(name, self.queue)


def read(config: Mapping[str, Any], args: Sequence[str] = ()) -> Settings:
    """The settings of a configuration and module arguments `key=value`, which win. Raises SettingsError."""
    asked: dict[str, str] = {}
    unknown: list[str] = []
    for name, known in ((QMANAGER, _QMANAGER_KEYS), (RESOURCE, _RESOURCE_KEYS)):
        table = config.get(name, {})
        if not isinstance(table, Mapping):
            raise SettingsError(f"{name}: must be a table, not {table!r}")
        for key, value in table.items():
            if key in known:
                if not isinstance(value, str):
                    raise SettingsError(f"{name}.{key}: must be a string, not {value!r}")
                asked[key] = value
            elif key not in _NO_EFFECT:
                unknown.append(f"{name}.{key}")
    limit = 0
    for arg in args:
        key, _, value = arg.partition("=")
        if key == "mode":
            limit = _limit(value)
        elif key in _QMANAGER_KEYS or key in _RESOURCE_KEYS:
            asked[key] = value
        else:
            keys = ", ".join(("mode", *_QMANAGER_KEYS, *_RESOURCE_KEYS))
            raise SettingsError(f"sched-graph: argument {arg!r}: must be KEY=VALUE with one of the keys {keys}")
    return Settings(
        queue=_queue(asked, "queue-policy", "queue-params", "policy-params"),
        queues=_per_queue(asked),
        match_policy=_match_policy(asked.get("match-policy", "lonode")),
        match_format=_one_of("match-format", asked.get("match-format", "rv1_nosched"), MATCH_FORMATS),
        limit=limit,
        asked=asked,
        unknown=tuple(unknown),
        fair_share=_fair_share(asked.get("fair-share", "")),
    )


_PER_QUEUE = ("queue-policy-per-queue", "queue-params-per-queue", "policy-params-per-queue")
# The last is not Fluxion's.
_QMANAGER_KEYS = ("queue-policy", "queue-params", "policy-params", *_PER_QUEUE, "fair-share")
_RESOURCE_KEYS = ("match-policy", "match-format")


def _one_of(key: str, value: str, names: Sequence[str]) -> str:
    if value not in names:
        raise SettingsError(f"{key}: must be one of {', '.join(names)}, not {value!r}")
    return value


def _queue(asked: Mapping[str, str], policy_key: str, queue_key: str, params_key: str) -> QueueSettings:
    policy = _one_of(policy_key, asked.get("queue-policy", QueueSettings().policy), tuple(QUEUE_POLICIES))
    queue = _numbers(queue_key, asked.get("queue-params", ""), _QUEUE_PARAMS)
    params = _numbers(params_key, asked.get("policy-params", ""), _POLICY_PARAMS)
    depth = queue.get("queue-depth", QueueSettings().depth)
    reservations = QUEUE_POLICIES[policy].reservations
    if policy == "hybrid":
        reservations = params.get("reservation-depth", reservations)
    if policy in ("hybrid", "conservative") and "max-reservation-depth" in params:
        most = params["max-reservation-depth"]
        reservations = most if reservations is None else min(reservations, most)
    changed = reservations != QUEUE_POLICIES[policy].reservations
    return QueueSettings(policy, min(depth, queue.get("max-queue-depth", depth)), reservations if changed else None)


def _per_queue(asked: Mapping[str, str]) -> dict[str, QueueSettings]:
    """`batch:easy debug:fcfs` and the like: what differs for queues by name."""
    own: dict[str, dict[str, str]] = {}
    for key in _PER_QUEUE:
        for item in asked.get(key, "").split():
            name, colon, value = item.partition(":")
            if not (name and colon and value):
                raise SettingsError(f"{key}: must be QUEUE:VALUE, several of them with spaces between, not {item!r}")
            own.setdefault(name, {})[key.removesuffix("-per-queue")] = value
    return {name: _queue({**asked, **values}, *_PER_QUEUE) for name, values in own.items()}


def _fair_share(text: str) -> float:
    try:
        found = duration.parse(text) if text else 0.0
    except ValueError:
        found = -1.0
    if not (found > 0 if text else found == 0) or found == inf:
        raise SettingsError(
            f"fair-share: must be the time in which half of what was used is forgotten, as 7d, not {text!r}"
        )
    return found


def _numbers(key: str, text: str, names: Sequence[str]) -> dict[str, int]:
    found = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = item.partition("=")
        if name not in names or not (value.isascii() and value.isdigit() and int(value)):
            wanted = " and ".join(f"{name}=N" for name in names)
            raise SettingsError(f"{key}: must be {wanted} with N a positive integer, not {item!r}")
        found[name] = int(value)
    return found


def _match_policy(text: str) -> Policy:
    """A policy by name, or put together from attributes such as `policy=high node_exclusive=true`."""
    if "=" not in text:
        return MATCH_POLICIES[_one_of("match-policy", text, tuple(MATCH_POLICIES))]
    given = dict.fromkeys(_CUSTOM, "false")
    for item in text.split():
        name, _, value = item.partition("=")
        if name not in _CUSTOM or value not in (("low", "high") if name == "policy" else ("true", "false")):
            raise SettingsError(
                f"match-policy: {item!r}: must be policy=low|high, node_centric=true|false, node_exclusive=true|false "
                "or set_stop_on_1_matches=true|false"
            )
        given[name] = value
    order = given["policy"] if given["policy"] != "false" else "low"
    whole = given["node_exclusive"] == "true"
    if given["set_stop_on_1_matches"] == "true" and order == "high":
        # The search meets the highest numbers first, so the first find is the highest.
        return MATCH_POLICIES["firstnodex" if whole else "first"]
    if whole:
        return MATCH_POLICIES["hinodex" if order == "high" else "lonodex"]
    if given["node_centric"] == "true" or given["set_stop_on_1_matches"] == "true":
        return MATCH_POLICIES["hinode" if order == "high" else "lonode"]
    return MATCH_POLICIES[order]


def _limit(value: str) -> int:
    kind, _, limit = value.partition("=")
    if value == "unlimited":
        return 0
    if kind == "limited" and limit.isascii() and limit.isdigit() and int(limit):
        return int(limit)
    raise SettingsError(f"sched-graph: mode={value}: use unlimited or limited=N")
