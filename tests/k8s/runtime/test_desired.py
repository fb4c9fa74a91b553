"""From what an object owns to what it should own: what is made, applied and deleted."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.k8s.objects.kinds import CONFIG_MAPS, JOBS
from headrace.k8s.runtime.steps import Apply, Create, Delete, Observed, Step, steps_towards

Object = dict[str, Any]
ITEM = {"metadata": {"name": "sum", "uid": "u"}}


def wanted(name: str = "a", **more: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "1"}, **more}


def steps(*objects: Object, owned: tuple[Object, ...] = ()) -> list[Step]:
    there = {"ConfigMap": {one["metadata"]["name"]: one for one in owned}}
    return list(steps_towards(Observed(ITEM, there), objects, JOBS, {"ConfigMap": CONFIG_MAPS}, "me/fingerprint"))


def stored(body: Object, uid: str = "c", **more: Any) -> Object:
    """What the API server has of an object that was made."""
    (step,) = steps(body)
    assert isinstance(step, Create)
    listed = {key: value for key, value in step.body.items() if key not in ("apiVersion", "kind")}
    return {**listed, "metadata": {**listed["metadata"], "uid": uid, "resourceVersion": "1", **more}}


def test_an_object_is_made_with_its_owner() -> None:
    (step,) = steps(wanted())
    assert isinstance(step, Create) and step.kind == CONFIG_MAPS
    (owner,) = step.body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Job", "sum", "u", True)
    assert step.body["data"] == {"x": "1"} and "ownerReferences" not in wanted()["metadata"]


def test_what_is_there_is_left_alone_whatever_the_server_added() -> None:
    there = stored(wanted())
    assert steps(wanted(), owned=(there,)) == []
    added = {**there, "immutable": False, "metadata": {**there["metadata"], "labels": {"theirs": ""}}}
    assert steps(wanted(), owned=(added,)) == []


@pytest.mark.parametrize(
    "found",
    [
        stored(wanted(data={"x": "2"})),
        # Somebody has changed it since.
        {**stored(wanted()), "data": {"x": "2"}},
        {**stored(wanted()), "data": {}},
        {**stored(wanted()), "data": None},
        # A field that is no longer wanted.
        stored(wanted(data={"x": "1", "y": "2"})),
    ],
)
def test_what_differs_is_applied(found: Object) -> None:
    (step,) = steps(wanted(), owned=(found,))
    assert isinstance(step, Apply) and (step.name, step.uid, step.body["data"]) == ("a", "c", {"x": "1"})


def test_a_list_is_compared_as_a_whole() -> None:
    ports = [{"port": 1}, {"port": 2}]
    there = stored(wanted(spec={"ports": ports}))
    assert steps(wanted(spec={"ports": ports}), owned=(there,)) == []
    (step,) = steps(wanted(spec={"ports": ports}), owned=({**there, "spec": {"ports": [*ports, {"port": 3}]}},))
    assert isinstance(step, Apply)


def test_what_is_not_wanted_any_more_is_deleted_once() -> None:
    old = stored(wanted("old"), uid="o")
    assert steps(owned=(old,)) == [Delete(CONFIG_MAPS, "old", "o")]
    assert steps(owned=(stored(wanted("old"), deletionTimestamp="2026-11-22T00:00:00Z"),)) == []


def test_a_kind_that_is_not_observed_is_a_defect() -> None:
    with pytest.raises(ValueError, match="Secret/a is wanted, but only ConfigMap are observed"):
        steps(wanted(kind="Secret"))
