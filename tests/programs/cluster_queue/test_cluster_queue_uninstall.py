"""What the uninstall of the cluster queue looks for, and what becomes of pods that only the queue could bind."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from itertools import product
from typing import Any, cast

from headrace.k8s.objects.kinds import Kind
from headrace.k8s.packaging.removal import DEFINITION, NAMESPACE, Removal
from headrace.k8s.runtime.api import Api, ApiError, Listing
from headrace.programs.cluster_queue.install import Install
from headrace.programs.cluster_queue.package import PACKAGE
from headrace.programs.cluster_queue.uninstall import declared, uninstall

Object = dict[str, Any]
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}


def key(one: Object) -> tuple[str, str, str]:
    return one["apiVersion"].rpartition("/")[0], one["kind"], one["metadata"]["name"]


def test_each_object_of_each_install_is_known_by_its_label_and_name() -> None:
    known = {key(one) for one in declared()}
    assert known >= {
        ("coordination.k8s.io", "Lease", "headrace-fluxqueue"),
        ("", "Secret", "headrace-fluxqueue-webhook"),
    }
    for strict, grpc, claim in product((True, False), (True, False), ("", "disk")):
        for one in PACKAGE.objects(Install(namespace="tools", strict=strict, grpc=grpc, store_claim=claim)):
            assert key(one) in known or one["kind"] == NAMESPACE
            labels = one["metadata"].get("labels") or {}
            assert one["kind"] == DEFINITION or labels["app.kubernetes.io/name"] == "headrace-fluxqueue"


class Server:
    """An API server with pods alone; `refuse` are names of pods about which each write is refused with a status."""

    def __init__(self, *pods: Object) -> None:
        self.pods = {one["metadata"]["name"]: one for one in pods}
        self.writes: list[tuple[str, str, str]] = []
        self.refuse: dict[str, int] = {}

    async def list_objects(
        self,
        kind: Kind,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        trim: Callable[[Object], Object] = dict,
    ) -> Listing:
        if kind.plural == "apiservices":
            available = {"conditions": [{"type": "Available", "status": "True"}]}
            return Listing([{"spec": {"version": "v1"}, "status": available}], "1")
        found = self.pods.values() if kind.plural == "pods" else ()
        return Listing([trim(copy.deepcopy(one)) for one in found], "1")

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        if not kind.plural:
            verbs = {"verbs": ["list"], "namespaced": False}
            return {"resources": [{"name": "namespaces", "kind": "Namespace", **verbs}]}
        raise ApiError(404, "NotFound", name)

    async def patch(self, kind: Kind, namespace: str, name: str, operations: list[Object]) -> Object:
        self._write("patch", name, "")
        del self.pods[name]["spec"]["schedulingGates"]
        return {}

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        self._write(kind.plural, body["metadata"]["name"], body["target"]["name"])
        self.pods[body["metadata"]["name"]]["spec"]["nodeName"] = body["target"]["name"]
        return {}

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str = "", propagation: str = "") -> None:
        self._write("delete", name, "")
        del self.pods[name]

    def _write(self, verb: str, name: str, what: str) -> None:
        self.writes.append((verb, name, what))
        if name in self.refuse:
            raise ApiError(self.refuse[name], "Refused", f"{name} is refused")


def pod(name: str, gated: bool = True, owner: Object | None = None, scheduler: str = "", **meta: Any) -> Object:
    full = {"name": name, "namespace": "team", "uid": name, **({"ownerReferences": [owner]} if owner else {}), **meta}
    spec = {"schedulingGates": [{"name": "fluxqueue"}]} if gated else {}
    return {"metadata": full, "spec": {**spec, **({"schedulerName": scheduler} if scheduler else {})}, "status": {}}


def removed(server: Server) -> Removal:
    told: list[str] = []
    removal = Removal(cast(Api, server), "headrace-fluxqueue", declared(), told.append, told.append)
    asyncio.run(uninstall(removal, False))
    return removal


def test_pods_that_the_queue_would_bind_go_to_their_node_or_are_made_anew() -> None:
    marks = {"annotations": {"fluxqueue/fluxion-nodes": "n1"}, "labels": {"fluxqueue/jobid": "7"}}
    server = Server(
        pod("placed", gated=False, scheduler="FluxionScheduler", **marks),
        pod("replica", scheduler="FluxionScheduler", owner=OWNER),
        pod("alone", scheduler="FluxionScheduler"),
        # Marks of a user give no place while the gate is there.
        pod("marked", scheduler="FluxionScheduler", **marks),
        pod("of-fluence", scheduler="fluence"),
        pod("elsewhere", gated=False, scheduler="default-scheduler"),
    )
    removal = removed(server)
    assert sorted(server.writes) == [
        ("bindings", "placed", "n1"),
        ("delete", "replica", ""),
        ("patch", "of-fluence", ""),
    ]
    left = {name: one.why for one in removal.remaining for name in one.objects}
    assert left.keys() == {"pod/alone (namespace team)", "pod/marked (namespace team)"}
    assert all("only FluxionScheduler" in why for why in left.values())
    assert sorted(one.name for one in removal.released) == ["of-fluence", "placed", "replica"]


def test_what_has_changed_is_tried_again_and_what_is_refused_is_told() -> None:
    server = Server(pod("changes"), pod("forbidden"), pod("free"))
    server.refuse = {"changes": 409, "forbidden": 403}
    removal = removed(server)
    assert [name for _, name, _ in server.writes].count("changes") == 5
    assert [name for _, name, _ in server.writes].count("forbidden") == 1
    assert [str(one) for one in removal.remaining] == [
        "pod/forbidden (namespace team): forbidden is refused",
        "pod/changes (namespace team): changes is refused",
    ]


def test_a_pod_that_its_user_has_put_on_hold_is_not_released() -> None:
    server = Server(pod("held", annotations={"fluxqueue/hold": "true"}), pod("free"))
    removal = removed(server)
    assert [name for _, name, _ in server.writes] == ["free"]
    (left,) = removal.remaining
    assert left.objects == ("pod/held (namespace team)",) and "kubectl patch pod NAME" in left.why
