"""Caches of one process: where each selection is listed, who is told, and what is kept of an object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from headrace.k8s.objects.kinds import JOBS, PODS, Kind
from headrace.k8s.runtime.api import ApiError, Listing
from headrace.k8s.runtime.watches import Selection, Watches, without_managed_fields
from waiting import until_in_loop

Object = dict[str, Any]


class Listed:
    """An API server with a Job in each namespace; `lists` has (namespace, label selector) of each listing."""

    def __init__(self, refused: str = "nowhere") -> None:
        self.lists: list[tuple[str, str]] = []
        self._refused = refused

    async def list_objects(self, kind: Kind, namespace: str = "", labels: str = "", *_more: Any) -> Listing:
        self.lists.append((namespace, labels))
        if namespace == self._refused:
            raise ApiError(403, "Forbidden", "may not list jobs")
        return Listing([{"metadata": {"name": "sum", "namespace": namespace, "uid": "1", "resourceVersion": "1"}}], "1")

    async def watch(self, *_args: str) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


def filled(watches: Watches) -> None:
    async def fill() -> None:
        running = asyncio.create_task(watches.run())
        await until_in_loop(lambda: watches.synced)
        await watches.filled()
        running.cancel()

    assert not watches.synced
    asyncio.run(fill())


def test_a_selection_is_listed_once_in_each_namespace_and_all_that_use_it_are_told() -> None:
    api = Listed()
    watches = Watches(api, ("a", "b"))  # type: ignore[arg-type]
    told: dict[str, list[str]] = {"one": [], "other": []}

    def one(item: Object) -> None:
        told["one"].append(item["metadata"]["namespace"])

    def other(item: Object) -> None:
        told["other"].append(item["metadata"]["namespace"])

    first = watches.cache(Selection(JOBS, "x=y"), one)
    assert watches.cache(Selection(JOBS, "x=y"), other) is first
    assert watches.cache(Selection(JOBS, "x=y"), one, ("c",)) is first
    assert watches.cache(Selection(JOBS)) is not first and watches.cache(Selection(PODS, "x=y")) is not first
    filled(watches)
    assert [where for where, labels in api.lists if labels == "x=y"] == ["a", "b", "c", "a", "b"]
    assert len(first) == 3 and told == {"one": ["a", "b", "c"], "other": ["a", "b", "c"]}


def test_objects_that_may_be_refused_hold_nothing_up() -> None:
    watches = Watches(Listed(refused="c"), ("a",))  # type: ignore[arg-type]
    watches.cache(Selection(JOBS))
    cache = watches.cache(Selection(JOBS), namespaces=("c",), without="there are none")
    filled(watches)
    assert [one["metadata"]["namespace"] for one in cache] == ["a"]


def test_all_namespaces_are_watched_unless_some_are_named() -> None:
    api = Listed()
    watches = Watches(api)  # type: ignore[arg-type]
    watches.cache(Selection(JOBS))
    filled(watches)
    assert api.lists == [("", "")]


def test_what_only_other_clients_read_is_not_kept() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}
    item = {"metadata": {"name": "x", "managedFields": [1], "annotations": annotations}, "spec": {}}
    assert without_managed_fields(item) == {"metadata": {"name": "x", "annotations": {"a": "b"}}, "spec": {}}
    assert len(annotations) == 2
