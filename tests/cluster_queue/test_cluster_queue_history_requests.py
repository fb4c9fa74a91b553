"""FluxHistories: what is answered to whom, with an API server in memory that has rights, and the real store."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from stored import life, opened

from headrace.cluster_queue import history_requests
from headrace.cluster_queue.history_requests import HistoryRequests, NotAnswered, ask
from headrace.cluster_queue.names import FLUXHISTORIES, POLICIES, POLICY_BINDINGS
from headrace.cluster_queue.store.database import Address
from headrace.cluster_queue.store.writing import write
from headrace.formats.exposition.metrics import Metrics
from headrace.k8s.objects.kinds import Kind
from headrace.k8s.objects.timestamps import text_of
from headrace.k8s.runtime.api import ApiError, Listing
from headrace.k8s.runtime.controller import Shared
from waiting import until_in_loop

Object = dict[str, Any]

ADA = {"username": "ada", "uid": "1", "groups": ["people"], "extra": {"scopes": ["all"]}}


class Server:
    """An API server that `user` asks. `may_list` has the namespaces whose FluxJobs each user may list ("": all)."""

    def __init__(self, **may_list: set[str]) -> None:
        self.user: Object = ADA
        self.may_list = may_list
        self.policies = {kind: time.time() - 3600 for kind in (POLICIES, POLICY_BINDINGS)}
        self.has_kind = True
        self.items: dict[str, Object] = {}
        self.made: list[Object] = []
        self.asked: list[Object] = []
        self._changes: asyncio.Queue[tuple[str, Object]] = asyncio.Queue()
        self._version = 1

    async def list_objects(
        self, kind: Kind, namespace: str = "", labels: str = "", fields: str = "", *_trim: Any
    ) -> Listing:
        if not self.has_kind:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return Listing(copy.deepcopy(list(self.items.values())), "1")

    async def watch(self, kind: Kind, version: str, *selected: str) -> AsyncIterator[tuple[str, Object]]:
        while True:
            yield await self._changes.get()

    async def create(self, kind: Kind, namespace: str, body: Object, dry_run: bool = False) -> Object:
        if kind.kind == "SelfSubjectReview":
            return {**body, "status": {"userInfo": self.user}}
        if kind.kind == "SubjectAccessReview":
            self.asked.append(body["spec"])
            allowed = body["spec"]["resourceAttributes"]["namespace"] in self.may_list[body["spec"]["user"]]
            return {**body, "status": {"allowed": allowed}}
        assert kind == FLUXHISTORIES
        if not self.has_kind:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        meta = {**body["metadata"], "namespace": namespace, "uid": "u", "creationTimestamp": text_of(time.time())}
        self.made.append({**body, "metadata": meta})
        return self._put("ADDED", {**body, "metadata": meta})

    async def get(self, kind: Kind, namespace: str, name: str, subresource: str = "") -> Object:
        if kind in self.policies:
            return {"metadata": {"creationTimestamp": text_of(self.policies[kind])}}
        if name not in self.items:
            raise ApiError(404, "NotFound", f"{name} not found")
        return copy.deepcopy(self.items[name])

    async def merge(self, kind: Kind, namespace: str, name: str, body: Object, subresource: str = "") -> Object:
        assert (kind, subresource, body["metadata"]) == (FLUXHISTORIES, "status", {"uid": "u"})
        return self._put("MODIFIED", {**self.items[name], "status": body["status"]})

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str = "", propagation: str = "Background"
    ) -> None:
        self._put("DELETED", self.items[name])
        del self.items[name]

    def _put(self, event: str, item: Object) -> Object:
        self._version += 1
        found = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}}
        self.items[item["metadata"]["name"]] = found
        self._changes.put_nowait((event, copy.deepcopy(found)))
        return copy.deepcopy(found)


def answered(server: Server, address: Address | None, act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What `act` returns while a queue with a store answers."""

    async def scenario() -> Any:
        shared = Shared(server, Metrics(), "headrace-fluxqueue")  # type: ignore[arg-type]
        HistoryRequests(shared, address)
        tasks = [asyncio.create_task(shared.watches.run()), asyncio.create_task(shared.work())]
        try:
            return await act()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(asyncio.wait_for(scenario(), 120))


def told(server: Server, address: Address | None, since: str = "7d", by: str = "namespace") -> history_requests.Answer:
    found = answered(server, address, lambda: ask(server, "own", since, by))  # type: ignore[arg-type]
    assert isinstance(found, history_requests.Answer)
    return found


@pytest.fixture
def store(tmp_path: Path) -> Address:
    """Jobs of the namespaces a (two), b and c, which all started 10 s after they came."""
    address, now = Address(f"sqlite:{tmp_path}/store.sqlite"), time.time()
    with opened(address) as database:
        for name, namespace in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")):
            more = {"namespace": namespace, "queued_at": now - 7210}
            write(database, life(name, now - 7200, now - 3600, **more))
    return address


def test_a_user_is_told_of_the_namespaces_whose_fluxjobs_he_may_list_and_the_number_of_other_jobs(store):
    server = Server(ada={"a", "c"})
    answer = told(server, store)
    assert [(row.name, row.jobs, row.states, row.waits.max) for row in answer.rows] == [
        ("a", 2, {"Finished": 2}, pytest.approx(10)),
        ("c", 1, {"Finished": 1}, pytest.approx(10)),
    ]
    assert (answer.unread, answer.omitted) == (1, 0)
    assert answer.rows[0].pod_hours == pytest.approx(4)
    # All that the API server knows of the user is asked by.
    assert {key: server.asked[0][key] for key in ("user", "uid", "groups", "extra")} == {
        **{"user": "ada", "uid": "1", "groups": ["people"], "extra": {"scopes": ["all"]}},
    }
    assert [one["resourceAttributes"]["namespace"] for one in server.asked] == ["", "a", "b", "c"]
    (whole,) = told(server, store, by="").rows
    assert (whole.name, whole.jobs, whole.pod_hours) == ("all", 3, pytest.approx(6))


def test_who_may_list_all_fluxjobs_is_told_of_all_and_who_may_list_none_of_none(store):
    server = Server(ada={""}, bob=set())
    answer = told(server, store)
    assert ([row.name for row in answer.rows], answer.unread) == (["a", "b", "c"], 0)
    assert len(server.asked) == 1
    server.user = {"username": "bob"}
    answer = told(server, store)
    assert (answer.rows, answer.unread) == ([], 4)
    assert told(server, store, since="30m").unread == 0


def test_the_name_is_random_and_nothing_is_left(store):
    server = Server(ada={""})
    told(server, store)
    told(server, store)
    first, second = (one["metadata"]["name"] for one in server.made)
    assert first != second and len(first) == len("history-") + 32
    assert not server.items


def test_an_answer_that_nobody_takes_is_deleted_after_a_while(store, monkeypatch):
    monkeypatch.setattr(history_requests, "KEPT", 0.2)
    server = Server(ada={""})
    body = {"metadata": {"name": "left"}, "spec": {"user": ADA, "since": "1h"}}

    async def act() -> None:
        await server.create(FLUXHISTORIES, "own", body)
        await until_in_loop(lambda: "status" in server.items.get("left", {"status": 1}))
        await until_in_loop(lambda: not server.items)

    answered(server, store, act)


def test_an_answer_has_so_many_rows_as_fit(store, monkeypatch):
    monkeypatch.setattr(history_requests, "LIMIT", 2)
    answer = told(Server(ada={""}), store)
    assert ([row.name for row in answer.rows], answer.omitted) == (["a", "b"], 1)


@pytest.mark.parametrize("kind", [POLICIES, POLICY_BINDINGS])
@pytest.mark.parametrize("age", [None, 5.0, -5.0])
def test_nothing_is_told_where_the_api_server_did_not_check_who_asks(store, kind, age):
    server = Server(ada={""})
    if age is None:
        del server.policies[kind]

        async def get(one: Kind, namespace: str, name: str, subresource: str = "") -> Object:
            if one == kind:
                raise ApiError(404, "NotFound", name)
            return await Server.get(server, one, namespace, name)

        server.get = get  # type: ignore[method-assign]
    else:
        server.policies[kind] = time.time() - age
    with pytest.raises(NotAnswered, match="the user cannot be verified"):
        told(server, store)
    assert not server.asked


def test_what_keeps_the_queue_from_an_answer_is_told(store, tmp_path, monkeypatch, caplog):
    server = Server(ada={""})
    with pytest.raises(NotAnswered, match="runs without a store"):
        told(server, None)
    with pytest.raises(NotAnswered, match="cannot be read now"):
        told(server, Address(f"sqlite:{tmp_path}/none"))
    assert "does not exist" in caplog.text
    with pytest.raises(NotAnswered, match=r"spec.since: invalid duration 'soon'"):
        told(server, store, since="soon")
    monkeypatch.setattr(history_requests, "PATIENCE", 0.2)
    with pytest.raises(NotAnswered, match="is the queue running in this cluster"):
        asyncio.run(ask(server, "own", "7d", ""))  # type: ignore[arg-type]
    assert not server.items
    # The caches of a queue whose definitions are older are filled all the same.
    server.has_kind = False
    with pytest.raises(NotAnswered, match="the cluster does not have the kind FluxHistory"):
        told(server, store)
