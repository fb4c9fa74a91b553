"""Carries out steps at the API server: writes the objects of an owner, and the owner's status.

Objects are made with a plain create, which fails if the name is taken. The existing object is then read, and is adopted
only if its controller has the owner's uid. Changes carry the object's uid, so that an object of the same name that
somebody else has created since is not changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..objects.kinds import Kind
from .api import ApiError
from .cache import owner_of
from .steps import Apply, Create, Delete, Patch, Step

Object = dict[str, Any]


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
    """An object with a required name has another owner; `what` is "Kind/name".

    `is_temporary` is True if the object is being deleted, or belongs to a former owner of the same name, so that
    Kubernetes' garbage collector deletes it.
    """

    def __init__(self, what: str, owner: str, is_temporary: bool = False) -> None:
        super().__init__(f"{what} exists but does not belong to this {owner}")
        self.what = what
        self.is_temporary = is_temporary


class Writes:
    """Writes the objects of owners of `kind`.

    `seen` is called with each object in a response. `is_own` returns True if an object that has the owner's uid was
    made by this controller.
    """

    def __init__(
        self, api: Writer, kind: Kind, seen: Callable[[Kind, Object], None],
        is_own: Callable[[Object], bool] = lambda item: True,
    ) -> None:  # fmt: skip
        self._api = api
        self._kind = kind
        self._seen = seen
        self._is_own = is_own

    async def carry_out(self, owner: Object, step: Step) -> None:
        """Do one step. Raises Taken, ApiError, Unreachable."""
        namespace = owner["metadata"].get("namespace", "")
        if isinstance(step, Create):
            await self._create(step.kind, owner, step.body)
        elif isinstance(step, Apply):
            body = {**step.body, "metadata": {**step.body["metadata"], "uid": step.uid}}
            self._seen(step.kind, await self._api.apply(step.kind, namespace, step.name, body))
        elif isinstance(step, Patch):
            body = {**step.body, "metadata": {**step.body.get("metadata", {}), "uid": step.uid}}
            self._seen(step.kind, await self._api.merge(step.kind, namespace, step.name, body))
        elif isinstance(step, Delete):
            await self._delete(step, namespace)

    async def publish(self, owner: Object, status: Object) -> None:
        """Write the status of the owner. Raises ApiError, Unreachable."""
        meta = owner["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": patch_of(owner.get("status") or {}, status)}
        try:
            written = await self._api.merge(self._kind, meta.get("namespace", ""), meta["name"], body, "status")
        except ApiError as exc:
            # The owner is gone, or another object has its name.
            if exc.status not in (404, 409):
                raise
        else:
            self._seen(self._kind, written)

    async def _create(self, kind: Kind, owner: Object, body: Object) -> None:
        name, namespace = body["metadata"]["name"], owner["metadata"].get("namespace", "")
        try:
            made = await self._api.create(kind, namespace, body)
        except ApiError as exc:
            if exc.reason != "AlreadyExists":
                raise
            # The object is the owner's if a former controller ended before it received the response to the create.
            made = await self._api.get(kind, namespace, name)
            if owner_of(made) != owner["metadata"]["uid"] or not self._is_own(made):
                raise Taken(f"{kind.kind}/{name}", self._kind.kind, self._is_temporary(made, owner)) from None
        self._seen(kind, made)

    async def _delete(self, step: Delete, namespace: str) -> None:
        try:
            await self._api.delete(step.kind, namespace, step.name, step.uid, step.propagation)
        except ApiError as exc:
            # The object is gone, or another object has its name.
            if exc.status not in (404, 409):
                raise

    def _is_temporary(self, found: Object, owner: Object) -> bool:
        meta = owner["metadata"]
        former = any(
            one.get("controller")
            and (one.get("kind"), one.get("name")) == (self._kind.kind, meta["name"])
            and one.get("uid") != meta["uid"]
            for one in found["metadata"].get("ownerReferences") or ()
        )
        return former or bool(found["metadata"].get("deletionTimestamp"))


def patch_of(before: Object, after: Object) -> Object:
    """The merge patch (RFC 7386) from `before` to `after`: fields that `after` lacks become null."""
    patch: Object = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            inner = patch_of(old, value)
            if inner:
                patch[key] = inner
        elif value != old:
            patch[key] = value
    return patch
