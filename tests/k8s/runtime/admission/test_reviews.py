"""Reviews of any kind: what is one, and how a verdict is told to the API server."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import hostfiles
import pytest

from headrace.formats.exposition.metrics import Metrics
from headrace.k8s.runtime.admission.reviews import BadReview, Verdict, json_patch, parse, response
from headrace.k8s.runtime.controller import Shared

Object = dict[str, Any]


def review(new: Any, old: Any = None, **request: Any) -> Object:
    full = {"uid": "u", "resource": {"resource": "jobs"}, "namespace": "n", "name": "c", "operation": "CREATE"}
    body = {**full, "object": new, "oldObject": old, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body}


def patched(before: Object, patch: list[Object]) -> Object:
    """What the API server stores."""
    after = copy.deepcopy(before)
    for step in patch:
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        place = after
        for part in path:
            place = place[part]
        if step["op"] == "remove":
            del place[last]
        else:
            assert (last in place) == (step["op"] == "replace")
            place[last] = step["value"]
    return after


def test_a_review_is_read() -> None:
    got = parse(review({"a": 1}, {"a": 0}, subResource="scale", operation="UPDATE"))
    assert got == ("u", "UPDATE", "jobs", "scale", "n", "c", {"a": 1}, {"a": 0})
    deletion = parse(review(None, {"a": 0}, operation="DELETE"))
    assert (deletion.operation, deletion.new, deletion.old) == ("DELETE", {}, {"a": 0})


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"apiVersion": "admission.k8s.io/v1beta1", "request": {}},
        {"apiVersion": "admission.k8s.io/v1", "request": 3},
        review({}, uid=3),
        review("text"),
        review({}, 3),
    ],
)
def test_what_is_no_review_is_told(body: Any) -> None:
    with pytest.raises(BadReview) as told:
        parse(body)
    assert told.value.status == 400


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({"a": 1}, {"a": 1}),
        ({"a": 1}, {}),
        ({}, {"a": {"b": 1}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 2, "d": [1]}}),
        ({"a": [1, 2]}, {"a": [1]}),
        ({"a": {}}, {"a": "text"}),
        ({"metadata": {"annotations": {"x.io/y": "1"}}}, {"metadata": {"annotations": {"x.io/y": "2", "a~b/c": ""}}}),
    ],
)
def test_a_patch_makes_the_one_of_the_other(before: Object, after: Object) -> None:
    patch = list(json_patch(before, after))
    assert patched(before, patch) == after
    assert (patch == []) == (before == after)


def test_a_kind_refuses_and_changes() -> None:
    handler = hostfiles.build(Shared(None, Metrics(), "some-operator"))["/mutate-jobs"]  # type: ignore[arg-type]

    def told(body: Object) -> Object:
        asked = parse(review(body))
        return dict(response(asked, handler.judge(asked))["response"])

    bad = told({"metadata": {}, "spec": {"parallelism": 1001}})
    assert bad["allowed"] is False and bad["status"]["message"] == "spec.parallelism: must not be above 1000"
    body = {"metadata": {}, "spec": {"parallelism": 2}}
    good = told(body)
    assert (good["allowed"], good["patchType"]) == (True, "JSONPatch")
    stored = patched(body, json.loads(base64.b64decode(good["patch"])))
    assert stored["spec"] == {"parallelism": 2, "completionMode": "Indexed", "completions": 2}


def test_an_object_that_is_not_changed_needs_no_patch() -> None:
    asked = parse(review({"a": 1}))
    told = response(asked, Verdict(changed={"a": 1}, warnings=("x" * 300,)))["response"]
    assert told.keys() == {"uid", "allowed", "warnings"} and told["warnings"] == ["x" * 253 + "..."]
