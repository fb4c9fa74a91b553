"""Fluxion's tables and module arguments become settings, or a refusal that names the key."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.engine.modules.sched.options import OptionError
from headrace.engine.modules.sched.settings import QueueSettings, SettingsError, read


def tables(**keys: str) -> dict[str, Any]:
    resource = {key.replace("_", "-"): value for key, value in keys.items() if key.startswith("match")}
    qmanager = {key.replace("_", "-"): value for key, value in keys.items() if not key.startswith("match")}
    return {"sched-fluxion-qmanager": qmanager, "sched-fluxion-resource": resource}


def test_nothing_configured_is_first_come_first_served_on_the_lowest_nodes() -> None:
    found = read({})
    assert (found.queue.policy, found.match_policy.name, found.match_format) == ("fcfs", "lonode", "rv1_nosched")
    assert found.asked == {}


def test_policies_and_their_parameters_are_read_as_fluxion_reads_them() -> None:
    found = read(
        tables(
            queue_policy="hybrid",
            queue_params="queue-depth=8192,max-queue-depth=4000",
            policy_params="reservation-depth=100, max-reservation-depth=32",
            match_policy="hinode",
            match_format="rv1",
        )
    )
    assert found.queue == QueueSettings("hybrid", 4000, 32)
    assert (found.match_policy.name, found.match_format) == ("hinode", "rv1")


@pytest.mark.parametrize(
    ("policy", "reservations"), [("fcfs", None), ("easy", None), ("hybrid", 7), ("conservative", 9)]
)
def test_reservation_depths_matter_only_to_policies_that_have_them(policy: str, reservations: int | None) -> None:
    found = read(tables(queue_policy=policy, policy_params="reservation-depth=7,max-reservation-depth=9"))
    assert found.queue.reservations == reservations


def test_queues_may_differ() -> None:
    found = read(
        tables(
            queue_policy="fcfs",
            queue_policy_per_queue="batch:easy night:hybrid",
            policy_params_per_queue="night:reservation-depth=3",
        )
    )
    assert found.for_queue("debug").policy == "fcfs"
    assert found.for_queue("batch").policy == "easy"
    assert found.for_queue("night") == QueueSettings("hybrid", reservations=3)


def test_arguments_win_over_the_configuration() -> None:
    found = read(tables(queue_policy="easy", match_policy="high"), ["queue-policy=conservative"])
    assert (found.queue.policy, found.match_policy.name) == ("conservative", "high")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("policy=low", "low"),
        ("policy=high", "high"),
        ("policy=high node_centric=true", "hinode"),
        ("policy=low node_exclusive=true", "lonodex"),
        ("policy=high node_exclusive=true set_stop_on_1_matches=true", "firstnodex"),
        ("set_stop_on_1_matches=true", "lonode"),
    ],
)
def test_a_match_policy_may_be_put_together_from_attributes(text: str, name: str) -> None:
    assert read(tables(match_policy=text)).match_policy.name == name


def test_keys_that_nobody_reads_change_nothing() -> None:
    found = read({"sched-fluxion-resource": {"prune-filters": "ALL:core", "matchpolicy": "first"}})
    assert found == read({})


@pytest.mark.parametrize(
    ("config", "args", "says"),
    [
        (tables(queue_policy="lifo"), [], "queue-policy: must be one of fcfs, easy, hybrid, conservative, not 'lifo'"),
        (tables(match_policy="best"), [], "match-policy: must be one of first"),
        (tables(match_policy="policy=middle"), [], "match-policy: 'policy=middle'"),
        (tables(match_format="jgf"), [], "match-format: must be one of rv1"),
        (tables(queue_params="queue-depth=-1"), [], "queue-params: must be queue-depth=N"),
        (tables(policy_params="depth=3"), [], "policy-params: must be reservation-depth=N"),
        (tables(queue_policy_per_queue="batch"), [], "queue-policy-per-queue: must be QUEUE:VALUE"),
        (tables(queue_policy_per_queue="batch:best"), [], "queue-policy-per-queue: batch: must be one of"),
        ({"sched-fluxion-qmanager": "easy"}, [], "sched-fluxion-qmanager: must be a table"),
        ({"sched-fluxion-qmanager": {"queue-policy": 1}}, [], "queue-policy: must be a string, not 1"),
    ],
)
def test_what_is_wrong_is_refused_with_the_key(config: dict[str, Any], args: list[str], says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read(config, args)
    assert says in str(refused.value)


def test_an_unknown_argument_is_refused_with_those_there_are() -> None:
    with pytest.raises(OptionError, match=r"unknown argument 'nonsense': built-in options are .*, match-policy"):
        read({}, ["nonsense"])
