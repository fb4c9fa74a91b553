"""Carries out the steps of `reconcile`: creates, changes and deletes the objects of a MiniCluster.

Objects are made with a plain create, which fails if the name is taken. The existing object is then read, and is ours
only if its controller has the MiniCluster's uid and it has our label. Changes carry the object's uid, so that an object
of the same name that somebody else has created since is not changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from ..minicluster.fields import KIND
from . import names
from .core.actions import Apply, Create, Delete, MakeSecret, Patch, Step, Tell
from .runtime.api import SECRETS, ApiError, Kind
from .runtime.cache import owner_of

Object = dict[str, Any]

log = logging.getLogger("headrace.kube.execute")


class Writer(Protocol):
    """The methods of `api.Api` that are used here."""

    async def get(self, kind: Kind, namespace: str, name: str, subresource: str = "") -> Object: ...
    async def create(self, kind: Kind, namespace: str, body: Object, dry_run: bool = False) -> Object: ...
    async def apply(self, kind: Kind, namespace: str, name: str, body: Object, force: bool = True) -> Object: ...
    async def merge(self, kind: Kind, namespace: str, name: str, body: Object, subresource: str = "") -> Object: ...
    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str = "", propagation: str = "Background"
    ) -> None: ...


class Taken(Exception):
    """An object with a required name has another owner; `what` is "Kind/name". `leaves`: it is being deleted, or is a
    former MiniCluster's of the same name, which Kubernetes' garbage collector deletes.
    """

    def __init__(self, what: str, leaves: bool = False) -> None:
        super().__init__(f"{what} exists and is not this MiniCluster's")
        self.what = what
        self.leaves = leaves


class Executor:
    """`seen` is called with each object in a response; `tell` takes requests to the lead; `secret` makes the body of a
    MiniCluster's Secret with fresh keys.
    """

    def __init__(
        self, api: Writer, seen: Callable[[Kind, Object], None], tell: Callable[[str, Object], None],
        secret: Callable[[Object], Object],
    ) -> None:  # fmt: skip
        self._api = api
        self._seen = seen
        self._tell = tell
        self._secret = secret

    async def carry_out(self, cluster: Object, steps: tuple[Step, ...]) -> None:
        """Do the steps in order, up to the first that fails: raises Taken, ApiError, Unreachable."""
        namespace, uid = cluster["metadata"]["namespace"], cluster["metadata"]["uid"]
        for step in steps:
            if isinstance(step, MakeSecret):
                await self._create(SECRETS, cluster, self._secret(cluster))
            elif isinstance(step, Create):
                await self._create(step.kind, cluster, step.body)
            elif isinstance(step, Apply):
                body = {**step.body, "metadata": {**step.body["metadata"], "uid": step.uid}}
                self._seen(step.kind, await self._api.apply(step.kind, namespace, step.name, body))
            elif isinstance(step, Patch):
                body = {**step.body, "metadata": {**step.body.get("metadata", {}), "uid": step.uid}}
                self._seen(step.kind, await self._api.merge(step.kind, namespace, step.name, body))
            elif isinstance(step, Delete):
                await self._delete(step, namespace)
            elif isinstance(step, Tell):
                self._tell(uid, step.request)

    async def _create(self, kind: Kind, cluster: Object, body: Object) -> None:
        name, namespace, uid = body["metadata"]["name"], cluster["metadata"]["namespace"], cluster["metadata"]["uid"]
        try:
            made = await self._api.create(kind, namespace, body)
        except ApiError as exc:
            if exc.reason != "AlreadyExists":
                raise
            # It is ours if an operator ended before the response arrived. The Go operator's objects have the same
            # owner.
            made = await self._api.get(kind, namespace, name)
            labels = made["metadata"].get("labels") or {}
            if owner_of(made) != uid or labels.get(names.MANAGED_BY) != names.MANAGER:
                raise Taken(f"{kind.kind}/{name}", _leaves(made, cluster)) from None
        self._seen(kind, made)

    async def _delete(self, step: Delete, namespace: str) -> None:
        try:
            await self._api.delete(step.kind, namespace, step.name, step.uid, step.propagation)
        except ApiError as exc:
            # The object is gone, or another one has its name.
            if exc.status not in (404, 409):
                raise


def _leaves(found: Object, cluster: Object) -> bool:
    meta = cluster["metadata"]
    former = any(
        one.get("controller")
        and (one.get("kind"), one.get("name")) == (KIND, meta["name"])
        and one.get("uid") != meta["uid"]
        for one in found["metadata"].get("ownerReferences") or ()
    )
    return former or bool(found["metadata"].get("deletionTimestamp"))
