"""The cache of a kind's objects: newest wins, owners are found, what was deleted is gone."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.k8s.runtime.cache import Cache, shared

Object = dict[str, Any]


def item(name: str, version: int, uid: str = "", owner: str = "") -> Object:
    meta: Object = {"namespace": "ns", "name": name, "uid": uid or name, "resourceVersion": str(version)}
    if owner:
        meta["ownerReferences"] = [{"uid": "other"}, {"uid": owner, "controller": True}]
    return {"metadata": meta}


def test_an_older_version_does_not_stand_in_for_a_newer_one() -> None:
    cache = Cache()
    cache.put(item("a", 5))
    assert cache.put(item("a", 4)) is None
    assert cache.get("ns", "a") == item("a", 5)
    cache.put(item("a", 4, uid="another"))
    assert cache.get("ns", "a") == item("a", 4, uid="another"), "an object made anew is another one"


def test_objects_are_found_by_the_controller_that_owns_them() -> None:
    cache = Cache()
    for name, owner in (("b", "x"), ("a", "x"), ("c", "y"), ("d", "")):
        cache.put(item(name, 1, owner=owner))
    assert [one["metadata"]["name"] for one in cache.owned_by("x")] == ["a", "b"]
    cache.put(item("a", 2, owner="y"))
    assert [one["metadata"]["name"] for one in cache.owned_by("x")] == ["b"]
    cache.drop(item("b", 1))
    assert cache.owned_by("x") == [] and cache.owned_by("nobody") == []
    assert len(cache) == 3


def test_a_late_deletion_does_not_take_the_namesake() -> None:
    cache = Cache()
    cache.put(item("a", 5, uid="new"))
    cache.drop(item("a", 3, uid="old"))
    assert cache.get("ns", "a") is not None


def test_a_listing_takes_away_what_is_not_in_it() -> None:
    cache = Cache()
    for name in ("a", "b", "c"):
        cache.put(item(name, 1))
    gone = cache.replace([item("b", 2), item("c", 1, uid="anew")])
    assert [one["metadata"]["uid"] for one in gone] == ["a", "c"]
    assert sorted(one["metadata"]["uid"] for one in cache) == ["anew", "b"]


def test_what_was_made_after_a_listing_is_not_taken_away_by_it() -> None:
    cache = Cache()
    for name, version in (("before", 4), ("at", 5), ("after", 6)):
        cache.put(item(name, version))
    assert [one["metadata"]["name"] for one in cache.replace([], version="5")] == ["before", "at"]
    assert [one["metadata"]["name"] for one in cache] == ["after"]


def test_a_listing_of_one_namespace_leaves_the_others() -> None:
    cache = Cache()
    for namespace in ("one", "two"):
        other = item("a", 1, uid=namespace)
        cache.put({**other, "metadata": {**other["metadata"], "namespace": namespace}})
    assert [one["metadata"]["uid"] for one in cache.replace([], "one")] == ["one"]
    assert [one["metadata"]["uid"] for one in cache] == ["two"]


def test_objects_are_trimmed_before_they_are_kept() -> None:
    cache = Cache(lambda one: {"metadata": {key: one["metadata"][key] for key in ("namespace", "name")}})
    cache.put({**item("a", 1), "spec": {"large": "x"}})
    assert cache.get("ns", "a") == {"metadata": {"namespace": "ns", "name": "a"}}


def test_what_cannot_be_trimmed_is_kept_whole_and_costs_itself_alone(caplog: pytest.LogCaptureFixture) -> None:
    def trim(item: Object) -> Object:
        if item["metadata"]["name"] == "odd":
            raise RecursionError("too deep")
        return {"metadata": item["metadata"]}

    cache = Cache(trim)
    for name in ("a", "odd", "z"):
        cache.put({**item(name, 1), "spec": {"a": 1}})
    assert [sorted(one) for one in cache] == [["metadata"], ["metadata", "spec"], ["metadata"]]
    assert [(one.levelname, one.__dict__["object"]) for one in caplog.records] == [("WARNING", "odd")]


def test_of_equal_parts_one_is_kept_unless_they_are_large() -> None:
    small, large = {"cpu": ["1", None, {"a": 2.5}]}, {"text": "x" * 10_000}
    assert shared(dict(small)) == small
    assert shared(dict(small)) is shared(dict(small))
    assert shared(large) is large
