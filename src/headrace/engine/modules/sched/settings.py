"""Configuration of the graph scheduler: Fluxion's tables and keys, also as module arguments.

This is separate from the module because a reloaded configuration is completely checked before any of it is applied.
Every error names the key, its value and the valid values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from headrace.engine.modules.sched.options import unknown
from headrace.formats.spec import duration
from headrace.sched.graph.policies import Policy
from headrace.sched.graph.policies import by_name as match_policy
from headrace.sched.queueing.policies import POLICIES as QUEUE_POLICIES

QMANAGER = "sched-fluxion-qmanager"
RESOURCE = "sched-fluxion-resource"
MATCH_FORMATS = ("rv1", "rv1_nosched", "rv1_shorthand")

_QUEUE_PARAMS = ("queue-depth", "max-queue-depth")
_POLICY_PARAMS = ("reservation-depth", "max-reservation-depth")


class SettingsError(ValueError):
    """An invalid setting. The message names the key, its value and the valid values."""


class QueueSettings(NamedTuple):
    """The settings of one queue.

    `depth` is the number of jobs that a pass tries to backfill, `reservations` the number of jobs with reservations. If
    `reservations` is None, the policy decides.
    """

    policy: str = "fcfs"
    depth: int = 500
    reservations: int | None = None


class Settings(NamedTuple):
    """All settings.

    `asked` has the configured texts by key, for the `params` query.
    """

    queue: QueueSettings
    queues: dict[str, QueueSettings]
    match_policy: Policy
    match_format: str
    asked: dict[str, str]
    # Seconds in which usage decays by half; 0 disables fair share.
    fair_share: float = 0.0

    def for_queue(self, name: str) -> QueueSettings:
        return self.queues.get(name, self.queue)


def read(config: Mapping[str, Any], args: Sequence[str] = ()) -> Settings:
    """The settings from a configuration and from module arguments `key=value`, which override it.

    Raises SettingsError, and OptionError for an unknown argument. The broker checks for unknown keys of the
    configuration (`formats/config/keys.py`).
    """
    asked: dict[str, str] = {}
    for name, known in ((QMANAGER, QMANAGER_KEYS), (RESOURCE, RESOURCE_KEYS)):
        table = config.get(name, {})
        if not isinstance(table, Mapping):
            raise SettingsError(f"{name}: must be a table, not {table!r}")
        for key, value in table.items():
            if key in known:
                if not isinstance(value, str):
                    raise SettingsError(f"{name}.{key}: must be a string, not {value!r}")
                asked[key] = value
    for arg in args:
        key, _, value = arg.partition("=")
        if key not in QMANAGER_KEYS and key not in RESOURCE_KEYS:
            raise unknown(arg, (*QMANAGER_KEYS, *RESOURCE_KEYS))
        asked[key] = value
    return Settings(
        queue=_queue(asked),
        queues=_per_queue(asked),
        match_policy=_match_policy(asked.get("match-policy", "lonode")),
        match_format=_one_of("match-format", asked.get("match-format", "rv1_nosched"), MATCH_FORMATS),
        asked=asked,
        fair_share=_fair_share(asked.get("fair-share", "")),
    )


_PER_QUEUE = ("queue-policy-per-queue", "queue-params-per-queue", "policy-params-per-queue")
# The last key is an extension of Headrace.
QMANAGER_KEYS = ("queue-policy", "queue-params", "policy-params", *_PER_QUEUE, "fair-share")
RESOURCE_KEYS = ("match-policy", "match-format")


def _one_of(key: str, value: str, names: Sequence[str]) -> str:
    if value not in names:
        raise SettingsError(f"{key}: must be one of {', '.join(names)}, not {value!r}")
    return value


def _queue(asked: Mapping[str, str], of: str = "") -> QueueSettings:
    """The settings of all queues, or of one queue. Errors name a key followed by `of`."""
    policy = _one_of(f"queue-policy{of}", asked.get("queue-policy", QueueSettings().policy), tuple(QUEUE_POLICIES))
    queue = _numbers(f"queue-params{of}", asked.get("queue-params", ""), _QUEUE_PARAMS)
    params = _numbers(f"policy-params{of}", asked.get("policy-params", ""), _POLICY_PARAMS)
    depth = queue.get("queue-depth", QueueSettings().depth)
    # As in Fluxion, a parameter that the policy does not use is not an error: queues may share one set of parameters.
    reservations = QUEUE_POLICIES[policy].reservations
    if policy == "hybrid":
        reservations = params.get("reservation-depth", reservations)
    if policy in ("hybrid", "conservative") and "max-reservation-depth" in params:
        most = params["max-reservation-depth"]
        reservations = most if reservations is None else min(reservations, most)
    changed = reservations != QUEUE_POLICIES[policy].reservations
    return QueueSettings(policy, min(depth, queue.get("max-queue-depth", depth)), reservations if changed else None)


def _per_queue(asked: Mapping[str, str]) -> dict[str, QueueSettings]:
    """The settings by queue, from texts such as `batch:easy debug:fcfs`."""
    own: dict[str, dict[str, str]] = {}
    for key in _PER_QUEUE:
        for item in asked.get(key, "").split():
            name, colon, value = item.partition(":")
            if not (name and colon and value):
                raise SettingsError(f"{key}: must be QUEUE:VALUE, or several of them separated by spaces, not {item!r}")
            own.setdefault(name, {})[key.removesuffix("-per-queue")] = value
    return {name: _queue({**asked, **values}, f"-per-queue: {name}") for name, values in own.items()}


def _fair_share(text: str) -> float:
    try:
        found = duration.parse(text) if text else 0.0
    except ValueError:
        found = -1.0
    if not (found > 0 if text else found == 0) or found == inf:
        raise SettingsError(f"fair-share: must be the half-life of usage, such as 7d, not {text!r}")
    return found


def _numbers(key: str, text: str, names: Sequence[str]) -> dict[str, int]:
    found = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = item.partition("=")
        if name not in names or not (value.isascii() and value.isdigit() and int(value)):
            wanted = " or ".join(f"{name}=N" for name in names)
            raise SettingsError(f"{key}: must be {wanted} with N a positive integer, not {item!r}")
        found[name] = int(value)
    return found


def _match_policy(text: str) -> Policy:
    try:
        return match_policy(text)
    except ValueError as exc:
        raise SettingsError(f"match-policy: {exc}") from None
