"""A labelled Job in the form of a MiniCluster, for the commands of users."""

from __future__ import annotations

import json
from typing import Any

import pytest
from labelled_world import admitted, written

from headrace.flux_jobs.client.jobs import as_minicluster, kind_and_name
from headrace.flux_jobs.operator.names import STATUS_ANNOTATION
from headrace.minicluster.client.clusters import OVER, exit_status, progress

Object = dict[str, Any]

TIME = "2023-11-14T22:13:20Z"


def job(body: Object | None = None, told: Object | str = "", condition: str = "", **status: Any) -> Object:
    found = body or admitted()
    text = told if isinstance(told, str) else json.dumps(told)
    found["metadata"].update(namespace="ns", uid="u", generation=3, creationTimestamp=TIME)
    if text:
        found["metadata"]["annotations"] = {STATUS_ANNOTATION: text}
    conditions = [{"type": condition, "status": "True", "message": "m", "lastTransitionTime": TIME}]
    found["status"] = {**status, "conditions": conditions if condition else []}
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("hello", None),
        ("job/hello", ("job", "hello")),
        ("trainjob/a", ("trainjob", "a")),
        ("jobset/b", ("jobset", "b")),
    ],
)
def test_kinds_are_named_before_a_slash(text: str, found: tuple[str, str] | None) -> None:
    assert kind_and_name(text) == found


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "Starting 0/2"),
        ({"ready": 1}, "Starting 1/2"),
        ({"ready": 2}, "Running 2/2"),
        ({"body": admitted(suspend=True)}, "Suspended"),
        ({"body": written()}, "Invalid: the operator's webhook did not see this Job when it was created"),
        ({"condition": "Failed", "told": {"exit": 3, "reason": "why"}}, "Failed: why"),
        *(
            (
                {"condition": "Failed", "told": text},
                "Running 0/2: it has failed, and the operator has not reported the result yet",
            )
            for text in ("", "no JSON", "[]", "{}")
        ),
        ({"condition": "Complete", "told": {"exit": 0, "reason": ""}}, "Finished"),
        *(
            (
                {"condition": kind, "ready": 2},
                "Running 0/2: it has succeeded, and the operator has not reported the result yet",
            )
            for kind in ("Complete", "SuccessCriteriaMet")
        ),
    ],
)
def test_how_far_it_has_come(given: Object, text: str) -> None:
    assert progress(as_minicluster(job(**given))) == text


def test_its_exit_code_is_that_of_the_command() -> None:
    failed = as_minicluster(job(condition="Failed", told={"exit": 3, "reason": "why", "times": {"created": TIME}}))
    assert (exit_status(failed), failed["status"]["times"], failed["status"]["phase"] in OVER) == (
        3,
        {"created": TIME},
        True,
    )
    killed = as_minicluster(job(condition="Failed", told={"reason": "it ran too long"}))
    assert (killed["status"]["phase"], exit_status(killed)) == ("Failed", 1)


def test_the_container_is_the_one_with_the_broker() -> None:
    pod = {
        "containers": [
            {"name": "side", "image": "i", "command": ["s"]},
            {"name": "node", "image": "i", "command": ["c"]},
        ]
    }
    assert as_minicluster(job(admitted(pod=pod)))["spec"] == {"size": 2, "container": "node"}
