"""Carries out what `reconcile` wants: the one place where the operator writes to the API server.

Objects are made with a plain create, which fails where the name is taken: what is there is then looked at, and is ours
only if its controller has the MiniCluster's uid and it has our label. Changes carry that object's uid, so that an
object which was deleted and made anew by somebody else meanwhile is not touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from . import names
from .actions import Apply, Create, Delete, MakeSecret, Patch, Step, Tell
from .api import SECRETS, ApiError, Kind
from .runtime.cache import owner_of

Object = dict[str, Any]

log = logging.getLogger("headrace.kube.execute")


class Writer(Protocol):
    """What of `api.Api` is used here."""

    async def get(self, kind: Kind, namespace: str, name: str, subresource: str = "") -> Object: ...
    async def create(self, kind: Kind, namespace: str, body: Object, dry_run: bool = False) -> Object: ...
    async def apply(self, kind: Kind, namespace: str, name: str, body: Object, force: bool = True) -> Object: ...
    async def merge(self, kind: Kind, namespace: str, name: str, body: Object, subresource: str = "") -> Object: ...
    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str = "", propagation: str = "Background"
    ) -> None: ...


class Taken(Exception):
    """An object of a name that is wanted is somebody else's; `what` is "Kind/name"."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} exists and is not this MiniCluster's")
        self.what = what


class Executor:
    """`seen` is called with each object that the server answered with; `tell` takes requests to the lead; `secret`
    makes the body of a MiniCluster's Secret with fresh keys."""

    def __init__(
        self, api: Writer, seen: Callable[[Kind, Object], None], tell: Callable[[str, Object], None],
        secret: Callable[[Object], Object],
    ) -> None:  # fmt: skip
        self._api = api
        self._seen = seen
        self._tell = tell
        self._secret = secret

    async def carry_out(self, cluster: Object, steps: tuple[Step, ...]) -> None:
        """Do the steps in order. Raises Taken, ApiError, Unreachable at the first that fails."""
        namespace, uid = cluster["metadata"]["namespace"], cluster["metadata"]["uid"]
        for step in steps:
            if isinstance(step, MakeSecret):
                await self._create(SECRETS, namespace, self._secret(cluster), uid)
            elif isinstance(step, Create):
                await self._create(step.kind, namespace, step.body, uid)
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

    async def _create(self, kind: Kind, namespace: str, body: Object, uid: str) -> None:
        name = body["metadata"]["name"]
        try:
            made = await self._api.create(kind, namespace, body)
        except ApiError as exc:
            if exc.reason != "AlreadyExists":
                raise
            # Ours where an operator died before it heard of its own creation. The Go operator's have the same owner.
            made = await self._api.get(kind, namespace, name)
            labels = made["metadata"].get("labels") or {}
            if owner_of(made) != uid or labels.get(names.MANAGED_BY) != names.MANAGER:
                raise Taken(f"{kind.kind}/{name}") from None
        self._seen(kind, made)

    async def _delete(self, step: Delete, namespace: str) -> None:
        try:
            await self._api.delete(step.kind, namespace, step.name, step.uid, step.propagation)
        except ApiError as exc:
            # It is gone, or another object has its name.
            if exc.status not in (404, 409):
                raise
