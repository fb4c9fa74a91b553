"""The plan of the pods of a Job: hosts by its name, its tasks, and what each pod has of its own."""

from __future__ import annotations

from typing import Any

import pytest

from flux_jobs.read.samples import Document, container, job
from headrace.flux_jobs.operator.objects import plan as make_pod_plan
from headrace.flux_jobs.read.job import read
from headrace.minicluster.api.pod_plan import PodPlan, decode, encode


def planned(options: str = "", **fields: Any) -> PodPlan:
    return make_pod_plan(read(job(options, **fields)), service="headrace-id", domain="cluster.local")


def test_the_hosts_are_the_pods_of_the_job() -> None:
    plan = planned(size=4)
    assert (plan.hosts, plan.lead, plan.size) == ("hello-[0-3]", "hello-0", 4)
    assert (plan.service, plan.domain, plan.quorum) == ("headrace-id", "cluster.local", "")
    assert decode(encode(plan)) == plan


def test_a_given_subdomain_has_the_names() -> None:
    pod = {"containers": [container()], "subdomain": "own"}
    assert planned(pod=pod).service == "own"


def test_a_job_that_may_grow_knows_all_hosts_and_starts_with_those_it_has() -> None:
    plan = planned("{maxSize: 8}", size=2)
    assert (plan.hosts, plan.size, plan.quorum) == ("hello-[0-7]", 2, "2")
    assert plan.attrs["broker.quorum"] == "2"


@pytest.mark.parametrize(
    ("options", "mode", "tasks", "environment"),
    [
        ("{procsPerNode: 3}", "submit", 3, {}),
        ("{procsPerNode: 3, run: node}", "submit", 1, {"PET_NPROC_PER_NODE": "3"}),
        ("{procsPerNode: 3, run: program}", "launcher", 0, {}),
    ],
)
def test_what_is_run(options: str, mode: str, tasks: int, environment: dict[str, str]) -> None:
    plan = planned(options)
    assert (plan.mode, plan.tasks_per_node, plan.environment) == (mode, tasks, environment)


def test_a_word_for_the_processes_of_a_node_stays() -> None:
    env = [{"name": "PET_NPROC_PER_NODE", "value": "auto"}]
    assert planned("{run: node}", pod={"containers": [container(env=env)]}).environment == {
        "PET_NPROC_PER_NODE": "auto"
    }


def test_brokers_alone() -> None:
    plan = planned("{interactive: true}")
    assert (plan.mode, plan.interactive) == ("interactive", True)


def test_variables_whose_values_come_from_the_pod_are_its_own() -> None:
    def source(kind: str, **what: str) -> Document:
        return {"valueFrom": {kind: what}}

    env = [
        {"name": "IP", **source("fieldRef", fieldPath="status.podIP")},
        {"name": "CPU", **source("resourceFieldRef", resource="limits.cpu")},
        {"name": "TOKEN", **source("secretKeyRef", name="s", key="k")},
        {"name": "URL", "value": "http://$(IP)/$(TOKEN)"},
        {"name": "ESCAPED", "value": "$$(IP)"},
        {"name": "NAME", **source("fieldRef", fieldPath="metadata.name")},
        {"name": "NAME", "value": "fixed"},
    ]
    plan = planned(pod={"containers": [container(env=env)]})
    assert sorted(plan.node_variables) == ["CPU", "IP", "JOB_COMPLETION_INDEX", "URL"]


@pytest.mark.parametrize(
    ("options", "fields", "replaces", "restarts"),
    [
        ("", {}, True, False),
        ("", {"podFailurePolicy": {"rules": [{"action": "FailJob"}]}}, False, False),
        ("{exit: keep}", {}, False, False),
        ("{exit: keep}", {"restart": "OnFailure"}, False, False),
        (
            "{exit: keep}",
            {"restart": "OnFailure", "successPolicy": {"rules": [{"succeededIndexes": "0"}]}},
            False,
            True,
        ),
    ],
)
def test_what_kubernetes_does_after_a_failure(options: str, fields: Document, replaces: bool, restarts: bool) -> None:
    policy = fields.pop("restart", "Never")
    plan = planned(options, pod={"containers": [container()], "restartPolicy": policy}, **fields)
    assert (plan.replaces_killed, plan.restarts_lead) == (replaces, restarts)
