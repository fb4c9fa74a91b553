"""Policy of RFC 33: defaults, limits, and what is wrong with a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.engine.jobs.policy import Policy, PolicyConfigError, PolicyError, UnknownQueue

SLOT = {"type": "slot", "count": 4, "label": "task", "with": [{"type": "core", "count": 2}]}


def jobspec(**system: Any) -> dict[str, Any]:
    task = {"command": ["true"], "slot": "task", "count": {"per_slot": 1}}
    return {"version": 1, "resources": [SLOT], "tasks": [task], "attributes": {"system": {"duration": 0, **system}}}


def limits(**sizes: Any) -> dict[str, Any]:
    return {"policy": {"limits": {"job-size": sizes}}}


def test_without_policy_everything_goes() -> None:
    policy = Policy({})
    assert policy.updates(jobspec()) == {}
    policy.check(jobspec(duration=1e9))
    for name in ("x", ""):
        with pytest.raises(PolicyError, match=f"'{name}' is not a valid queue"):
            policy.updates(jobspec(queue=name))


def test_named_queues_need_a_default_or_the_name_of_one() -> None:
    policy = Policy({"queues": {"a": {}}})
    with pytest.raises(UnknownQueue, match="no queue specified"):
        policy.updates(jobspec())
    for name in ("x", ""):
        with pytest.raises(UnknownQueue, match=f"Invalid queue '{name}' specified"):
            policy.updates(jobspec(queue=name))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (limits(max={"ncores": 7}), "requested ncores (8) exceeds policy limit of 7"),
        (limits(min={"ncores": 9}), "requested ncores (8) is under policy limit of 9"),
        (limits(max={"ngpus": 0}), ""),
        (limits(max={"ncores": -1}), ""),
        ({"policy": {"limits": {"duration": "1m"}}}, "requested duration (unlimited) exceeds policy limit of 1m"),
    ],
)
def test_limits_are_named_in_the_refusal(config: dict[str, Any], text: str) -> None:
    policy = Policy(config)
    if not text:
        policy.check(jobspec())
        return
    with pytest.raises(PolicyError) as info:
        policy.check(jobspec())
    assert str(info.value) == text


def test_a_queue_may_lift_a_limit_of_all() -> None:
    config = {**limits(max={"ncores": 1}), "queues": {"big": {"policy": limits(max={"ncores": -1})["policy"]}}}
    Policy(config).check(jobspec(queue="big"))


def test_changing_queues_exchanges_their_constraints() -> None:
    policy = Policy({"queues": {"a": {"requires": ["a"]}, "b": {"requires": ["b"]}, "c": {}}})
    of_a, of_b = {"properties": ["a"]}, {"properties": ["b"]}
    own = {"ranks": ["0"]}
    assert policy.constraint_for(of_a, "a", "b") == of_b
    assert policy.constraint_for({"and": [own, of_a]}, "a", "b") == {"and": [own, of_b]}
    assert policy.constraint_for({"and": [own, of_a]}, "a", "c") == own
    assert policy.constraint_for(None, "c", "b") == of_b
    assert policy.constraint_for(of_a, "a", "c") is None
    with pytest.raises(UnknownQueue):
        policy.constraint_for(None, "a", "d")


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({"policy": 1}, "policy: must be a table"),
        ({"queues": {"a": 1}}, "queues.a: must be a table"),
        ({"queues": {"a": {"requires": "x"}}}, "queues.a.requires: must be an array"),
        ({"policy": {"limits": {"duration": "soon"}}}, "policy.limits.duration"),
        ({"policy": {"limits": {"duration": 1.0}}}, "policy.limits.duration: must be a duration in quotes"),
        ({"policy": {"limits": {"job-size": "wrong"}}}, "policy.limits.job-size: must be a table"),
        ({"policy": {"access": {"allow-user": [1]}}}, "policy.access.allow-user: must be an array of names"),
        ({"queues": {"a": {"policy": {"access": {"allow-group": 1}}}}}, "queues.a.policy.access.allow-group"),
        ({"queues": {"a": {"requires": ["foo|bar"]}}}, "queues.a.requires: 'foo|bar' is not the name of a property"),
        (
            {"queues": {"a": {"policy": {"jobspec": {"defaults": {"system": {"queue": "a"}}}}}}},
            "queues.a.policy.jobspec.defaults.system.queue: only [policy] can name",
        ),
        ({"policy": {"jobspec": {"defaults": {"system": {"queue": "x"}}}}}, "'x' is not one of"),
        ({"policy": {"jobspec": {"defaults": {"system": {"queue": 1}}}}}, "must be a string"),
        (limits(max={"nnodes": "many"}), "policy.limits.job-size.max.nnodes"),
    ],
)
def test_a_wrong_configuration_is_named(config: dict[str, Any], where: str) -> None:
    with pytest.raises(PolicyConfigError) as info:
        Policy(config)
    assert where in str(info.value)
