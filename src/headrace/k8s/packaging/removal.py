"""Removes the install of a program from a cluster.

This is the common part of the uninstall commands of the operator and of the cluster queue. The objects of an install
are found by their label and their names, so it does not matter whether kubectl, kustomize, Helm or the program itself
created them, nor which of them are gone already. Each step can be interrupted and repeated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..objects.conditions import holds
from ..objects.kinds import APISERVICES, PROGRAM_LABEL, Kind
from ..progress import News
from ..runtime.api import Api, ApiError

Object = dict[str, Any]

DEFINITION = "CustomResourceDefinition"
NAMESPACE = "Namespace"
# Objects, by kind and name ("": any), that Kubernetes creates in each namespace or derives from other objects.
_OF_KUBERNETES = {
    *(("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")),
    *((kind, "") for kind in ("Event", "Endpoints", "EndpointSlice", "PodMetrics")),
}
# Seconds between two checks of objects that are being deleted.
_POLL_INTERVAL = 0.5
# The HTTP status with which the API server asks for a later retry.
_TOO_MANY = 429
# The number of objects that a message names.
_NAMED = 8


class Served(NamedTuple):
    """A kind that the API server lists."""

    kind: Kind
    namespaced: bool


class Item(NamedTuple):
    """An object of a cluster."""

    kind: Kind
    body: Object

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"].get("namespace", ""))

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    def __str__(self) -> str:
        where = f" (namespace {self.namespace})" if self.namespace else ""
        return f"{self.kind.kind.lower()}/{self.name}{where}"


class Remaining(NamedTuple):
    """Objects that stay in the cluster, as `KIND/NAME`; `why` has the reason and what to do about them."""

    objects: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        return f"{named(self.objects)}: {self.why}"


class TooLongError(Exception):
    """Deleted objects are still there after the time limit."""


def named(texts: Iterable[str]) -> str:
    """A list of names, shortened if it is long."""
    found = list(texts)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


async def kinds_served(api: Api) -> list[Served]:
    """The kinds that the API server lists, except those of APIs whose server does not respond.

    Raises ApiError, Unreachable.
    """

    async def of_api(item: Object) -> list[Served]:
        group, version = item["spec"].get("group", ""), item["spec"]["version"]
        try:
            found = (await api.get(Kind(group, version, "", ""), "", ""))["resources"]
        except ApiError as exc:
            if exc.status not in (404, 503):
                raise
            return []
        return [
            Served(Kind(group, version, one["name"], one["kind"]), one["namespaced"])
            for one in found
            if "list" in one["verbs"] and "/" not in one["name"]
        ]

    # Each version of a group has an APIService, including those of the API server itself.
    apis = [one for one in (await api.list_objects(APISERVICES)).items if _is_available(one)]
    return [one for found in await asyncio.gather(*map(of_api, apis)) for one in found]


def _is_available(api_service: Object) -> bool:
    return holds(api_service.get("status"), "Available")


class Removal:
    """Removes the install of the program `component`.

    `declared` are all objects that any install of it has, by kind and name. `report` is called with a line for each
    deleted object, `notify` with the objects that the removal waits for. With `dry_run` nothing is changed. `timeout`
    is the limit for the whole removal, in seconds.
    """

    def __init__(
        self, api: Api, component: str, declared: Iterable[Object], report: Callable[[str], None],
        notify: Callable[[str], None], dry_run: bool = False, timeout: float = float("inf"),
    ) -> None:  # fmt: skip
        self.api, self.dry_run, self._report, self.notify = api, dry_run, report, notify
        self.deleted: list[Item] = []
        self.released: list[Item] = []
        self.remaining: list[Remaining] = []
        self.served: list[Served] = []
        self.items: list[Item] = []
        self._component, self._until = component, time.monotonic() + timeout
        self._declared = {(_group(one), one["kind"], one["metadata"]["name"]) for one in declared}

    async def find_objects(self) -> None:
        """Find the objects of the install. Raises ApiError, Unreachable."""
        self.served = await kinds_served(self.api)
        wanted = {(group, kind) for group, kind, _ in self._declared}
        # All versions of a kind list the same objects.
        found: dict[str, Item] = {}
        for kind, _ in self.served:
            if (kind.group, kind.kind) in wanted:
                for one in await self._of_install(kind):
                    found.setdefault(_uid(one), one)
        self.items = list(found.values())

    async def listed(
        self, kind: Kind, labels: str = "", fields: str = "", trim: Callable[[Object], Object] = lambda item: item
    ) -> list[Item]:
        """The objects of a kind in all namespaces; [] if the cluster does not serve the kind.

        Raises ApiError, Unreachable.
        """
        while True:
            try:
                found = await _unless_gone(self.api.list_objects(kind, labels=labels, fields=fields, trim=trim))
                return [Item(kind, one) for one in found.items] if found else []
            except ApiError as exc:
                # The API server responds with 429 for a moment after a kind is defined.
                if exc.status != _TOO_MANY or time.monotonic() > self._until:
                    raise
            await asyncio.sleep(_POLL_INTERVAL)

    async def _of_install(self, kind: Kind) -> list[Item]:
        # Definitions are found by name alone.
        labels = "" if kind.kind == DEFINITION else f"{PROGRAM_LABEL}={self._component}"
        found = await self.listed(kind, labels)
        names = {name for group, declared, name in self._declared if (group, declared) == (kind.group, kind.kind)}
        # The namespace of an install may have any name.
        anywhere = kind.kind == NAMESPACE
        return [one for one in found if anywhere or one.name in names]

    def of(self, *kinds: str) -> list[Item]:
        """The objects of some kinds that `find_objects` found."""
        return [one for one in self.items if one.kind.kind in kinds]

    def kind(self, group: str, kind: str) -> Kind | None:
        """A kind that the cluster has; None if it lacks the kind."""
        return next((one for one, _ in self.served if (one.group, one.kind) == (group, kind)), None)

    async def delete(
        self, items: Iterable[Item], propagation: str = "Background", patience: float = float("inf")
    ) -> None:
        """Delete objects and wait until they are gone, at most `patience` seconds.

        Raises ApiError, Unreachable, TooLongError.
        """
        found = list(items)
        for one in found:
            if not self.dry_run:
                await _unless_gone(self.api.delete(one.kind, one.namespace, one.name, _uid(one), propagation))
            self._say(one, "deleted")
        self.deleted += found
        await self.until_gone(found, patience)

    def release(self, item: Item) -> None:
        """Report an object as released."""
        self.released.append(item)
        self._say(item, "released")

    def keep(self, items: Iterable[object], why: str) -> None:
        """Report objects that stay, and the reason."""
        self.remaining.append(Remaining(tuple(map(str, items)), why))

    def _say(self, item: Item, what: str) -> None:
        self._report(f"{item} {what}{' (dry run)' if self.dry_run else ''}")

    async def until_gone(self, items: Iterable[Item], patience: float = float("inf")) -> None:
        """Wait until objects that are being deleted are gone, at most `patience` seconds.

        Raises ApiError, Unreachable, TooLongError.
        """
        waiting = [] if self.dry_run else list(items)
        news, until = News(self.notify), time.monotonic() + patience
        while True:
            still = [(one, body) for one in waiting if (body := await self._still_there(one))]
            if not still or time.monotonic() > until:
                return
            waiting = [one for one, _ in still]
            text = f"{named(map(str, waiting))} still there{_kept_by(*still[0])}"
            news.waits_for(f"waiting: {text}")
            if time.monotonic() > self._until:
                raise TooLongError(text)
            await asyncio.sleep(_POLL_INTERVAL)

    async def _still_there(self, one: Item) -> Object | None:
        found = await _unless_gone(self.api.get(one.kind, one.namespace, one.name))
        return found if found and found["metadata"]["uid"] == _uid(one) else None

    async def delete_namespaces(self, others: Iterable[str]) -> None:
        """Delete the namespaces of the install, and those named in `others` that exist.

        A namespace stays if it contains objects of others. Raises ApiError, Unreachable, TooLongError.
        """
        kind = self.kind("", NAMESPACE)
        assert kind is not None
        found = {one.name: one for one in self.of(NAMESPACE)}
        for name in others:
            body = None if name in found else await _unless_gone(self.api.get(kind, "", name))
            if body:
                found[name] = Item(kind, body)
        for one in found.values():
            inside = await self._others_in(one.name)
            if not inside:
                await self.delete([one])
                continue
            how = f"kubectl delete namespace {one.name} deletes it with all that is in it"
            if release := next(filter(None, map(_helm_release, inside)), ""):
                how = f"helm uninstall {release} -n {one.name}, and then this command again, delete it"
            texts = sorted({f"{each.kind.kind.lower()}/{each.name}" for each in inside})
            self.keep([one], f"it has {named(texts)}; {how}")

    async def _others_in(self, namespace: str) -> list[Item]:
        """The objects in a namespace that belong neither to the install nor to Kubernetes itself."""

        async def of_kind(kind: Kind) -> list[Item]:
            found = await _unless_gone(self.api.list_objects(kind, namespace))
            return [Item(kind, one) for one in found.items] if found else []

        listed = await asyncio.gather(*(of_kind(one) for one, namespaced in self.served if namespaced))
        inside = [one for found in listed for one in found if not _is_of_kubernetes(one)]
        ours, before = {_uid(one) for one in self.items}, 0
        while len(ours) > before:
            # Objects that an object of the install owns are deleted with it.
            before = len(ours)
            ours |= {_uid(one) for one in inside if ours.intersection(_owners(one))}
        return [one for one in inside if _uid(one) not in ours]


def _group(item: Object) -> str:
    return str(item["apiVersion"].rpartition("/")[0])


def _uid(item: Item) -> str:
    return str(item.body["metadata"]["uid"])


def _owners(item: Item) -> list[str]:
    """The uids of the owners of an object."""
    return [str(one["uid"]) for one in item.body["metadata"].get("ownerReferences") or ()]


def _is_of_kubernetes(item: Item) -> bool:
    """True if Kubernetes created an object, or it is being deleted already."""
    kinds = {(item.kind.kind, ""), (item.kind.kind, item.name)}
    return bool(kinds & _OF_KUBERNETES or item.body["metadata"].get("deletionTimestamp"))


def _helm_release(item: Item) -> str:
    """The release whose record Helm keeps in an object; "" for any other object."""
    labels = item.body["metadata"].get("labels") or {}
    return str(labels.get("name", "")) if labels.get("owner") == "helm" else ""


def _kept_by(one: Item, body: Object) -> str:
    """The reason why an object is not deleted yet, as far as its body shows it."""
    if one.kind.kind == NAMESPACE:
        conditions = (body.get("status") or {}).get("conditions") or ()
        reasons = [str(each.get("message", "")) for each in conditions if each.get("status") == "True"]
    else:
        reasons = [f"finalizer {each}" for each in body["metadata"].get("finalizers") or ()]
    return f" ({'; '.join(reasons)})" if reasons else ""


async def _unless_gone(request: Any) -> Any:
    """The response to a request; None if the object or its kind does not exist."""
    try:
        return await request
    except ApiError as exc:
        if exc.status not in (404, 409):
            raise
        return None
