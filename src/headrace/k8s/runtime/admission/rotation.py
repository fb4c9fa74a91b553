"""Keeps the webhook's certificate valid: one of its own in a Secret, or one from files.

By default the operator makes a pair on the first start, stores it in a Secret of its namespace, and replaces it after
two thirds of its lifetime. It writes the pair's authority into the webhook configuration (`caBundle`), and writes it
again whenever it is removed there. With cert-manager, or any other source, the pair is a folder with `tls.crt` and
`tls.key`, which is read again when the files change; the source then also provides the `caBundle`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from aiohttp import web
from msgspec import Struct

from ...objects.kinds import (
    AGGREGATION_CONFIG_MAP,
    AGGREGATION_NAMESPACE,
    APISERVICES,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    PROGRAM_LABEL,
    SECRETS,
    Kind,
    api_service_name,
)
from ..api import Api, ApiError, Unreachable
from .aggregation import Aggregator, Clients, Refusal, aggregator_of, unreadable
from .certificates import Pair, UnusablePair, decoded, encoded, make_pair, pair_of, renewal_time, secret_data, trusting
from .reviews import Handler
from .server import application, serving

# Seconds between two checks of the renewal time, or of the files in a folder.
_POLL_INTERVAL = 60.0
# Seconds before a failed step is retried: the first and the longest delay.
_FIRST_RETRY = 1.0
_LAST_RETRY = 60.0

log = logging.getLogger(__name__)


class Settings(Struct, frozen=True, kw_only=True):
    """The address of the webhook, and the names of the objects that store its certificate."""

    namespace: str
    service: str
    secret: str
    # The name of the program (app.kubernetes.io/name).
    component: str
    # The kinds and names of the webhook configurations that trust the certificate.
    configurations: tuple[tuple[Kind, str], ...]
    # The APIs (GROUP/VERSION) that the same server serves, as an extension API server.
    api_services: tuple[str, ...] = ()
    # The ClusterRole that owns the APIServices of these APIs, so that they are deleted with the install that grants the
    # right to create them.
    api_services_role: str = ""
    # Called with the name of such an APIService, and the Service of another program that has it; "" if it is ours.
    owned_elsewhere: Callable[[str, str], None] = lambda name, owner: None
    # Called with the reason why requests for these APIs are rejected; "" if they are served.
    unanswered: Callable[[str], None] = lambda why: None
    host: str = ""
    port: int = 0
    # If set, the certificate is read from `tls.crt` and `tls.key` in this folder, and is not stored in the cluster.
    folder: str = ""
    # For a program outside the cluster: its host name or address, for the URL in the webhook configurations.
    address: str = ""

    @property
    def hosts(self) -> list[str]:
        """The host names by which the API server connects to the webhook."""
        return [f"{self.service}.{self.namespace}.svc", *([self.address] if self.address else [])]


class NoOwnerError(ApiError):
    """The ClusterRole that would own the APIServices cannot be read.

    An APIService without an owner would outlast the install, so none is created.
    """

    def __init__(self, exc: ApiError, name: str) -> None:
        text = f"no APIService is made without the ClusterRole {name}, which owns it: {exc.message}"
        super().__init__(exc.status, exc.reason, text)


def _utc() -> datetime:
    return datetime.now(timezone.utc)


async def serve(
    api: Api,
    settings: Settings,
    handlers: Mapping[str, Handler],
    ready: Callable[[int], None] = lambda port: None,
    routes: Callable[[Refusal], Iterable[web.RouteDef]] = lambda refusal: (),
) -> None:
    """Serve the webhook until cancelled.

    `handlers` are by path. `routes` returns the routes of the APIs, which reject requests for which its argument
    returns a reason. `ready` is called with the port once the server listens. Raises OSError.
    """
    keeper = Keeper(api, settings)
    clients = Clients(await keeper.first(), settings.unanswered)
    app = application(handlers)
    app.add_routes(routes(clients.refusal))
    async with serving(app, clients.context, settings.host, settings.port) as port:
        ready(port)
        await keeper.keep(clients.use_pair, clients.use_aggregator)


class Keeper:
    """Keeps the certificate of one replica of the operator."""

    def __init__(self, api: Api, settings: Settings, clock: Callable[[], datetime] = _utc) -> None:
        self.api = api
        self.settings = settings
        self.clock = clock
        self.pause = _POLL_INTERVAL
        self._pair: Pair | None = None
        self._renewal = datetime.max.replace(tzinfo=timezone.utc)

    async def first(self) -> Pair:
        """The initial pair. Until there is one, retries and logs why."""
        pause = _FIRST_RETRY
        while True:
            try:
                return await self.current()
            except (ApiError, Unreachable, UnusablePair, OSError) as exc:
                log.warning("no certificate for the webhook yet: %s", exc)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_RETRY)

    async def keep(
        self, use: Callable[[Pair], None], use_aggregator: Callable[[Aggregator], None] = lambda found: None
    ) -> None:
        """Keep the pair current until cancelled: replace it in time, and keep its authority trusted.

        If the server serves APIs, `use_aggregator` is called with their aggregation layer.
        """
        running = [self._follow_api_service(one) for one in self.settings.api_services]
        if self.settings.api_services:
            running.append(self._follow_aggregator(use_aggregator))
        if self.settings.folder:
            running.append(self._follow_folder(use))
        else:
            running += [self._follow(kind, name) for kind, name in self.settings.configurations]
            running.append(self._renew(use))
        tasks = [asyncio.create_task(one) for one in running]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def current(self) -> Pair:
        """The present pair; it is created or replaced if necessary, and trusted by the API server."""
        if self.settings.folder:
            return _read(Path(self.settings.folder))
        while True:
            secret = await self._stored()
            stored = pair_of(secret or {})
            try:
                self._renewal = renewal_time(stored, self.settings.hosts)
                if self.clock() < self._renewal:
                    await self._trust(stored.authority)
                    self._pair = stored
                    return stored
                log.info("replacing the webhook's certificate: two thirds of its life are over")
            except UnusablePair as exc:
                if secret:
                    log.warning("replacing the webhook's certificate: %s", exc)
            fresh = make_pair(self.settings.hosts, self.clock())
            # The new authority is trusted before any replica uses it; the old one stays trusted for replicas that still
            # use it.
            await self._trust(fresh.authority, before=stored.authority)
            # Another replica may have stored its pair first; the next iteration finds that pair.
            await self._store(fresh, secret)

    async def _stored(self) -> dict[str, Any] | None:
        try:
            return await self.api.get(SECRETS, self.settings.namespace, self.settings.secret)
        except ApiError as exc:
            if exc.status != 404:
                raise
            return None

    async def _store(self, pair: Pair, secret: dict[str, Any] | None) -> None:
        name, namespace = self.settings.secret, self.settings.namespace
        try:
            if secret is None:
                metadata = {"name": name, "labels": {PROGRAM_LABEL: self.settings.component}}
                body = {"metadata": metadata, "type": "kubernetes.io/tls", "data": secret_data(pair)}
                await self.api.create(SECRETS, namespace, {"apiVersion": "v1", "kind": "Secret", **body})
            else:
                await self.api.replace(SECRETS, namespace, name, {**secret, "data": secret_data(pair)})
        except ApiError as exc:
            if exc.status != 409:
                raise

    async def _trust(self, authority: str, before: str = "") -> None:
        """Make the API server trust `authority` and `before`; nothing is written if it already does."""
        for kind, name in self.settings.configurations:
            try:
                configuration = await self.api.get(kind, "", name)
            except ApiError as exc:
                if exc.status != 404:
                    raise
                log.warning(
                    "webhook configuration %s does not exist: the webhook has no effect until it is created", name
                )
                continue
            await self._correct(kind, configuration, authority, before)
        for one in self.settings.api_services:
            try:
                await self._register(one, authority, before)
            except NoOwnerError as exc:
                # The webhook starts without the APIService; `_follow_api_service` tries again.
                log.warning("%s", exc)

    async def _register(self, group_version: str, authority: str, before: str = "") -> None:
        """Register this program as the server of a group and version, and trust `authority` and `before`.

        If another program has the APIService, it is not changed. Raises NoOwnerError, ApiError, Unreachable.
        """
        wanted = api_service(group_version, self.settings, await self._owner())
        name = wanted["metadata"]["name"]
        try:
            found = await self.api.get(APISERVICES, "", name)
        except ApiError as exc:
            if exc.status != 404:
                raise
            bundle = {"caBundle": encoded(trusting("", authority, before))} if authority else {}
            try:
                found = await self.api.create(APISERVICES, "", {**wanted, "spec": {**wanted["spec"], **bundle}})
            except ApiError as conflict:
                # Another replica was first; the watch reports its APIService.
                if conflict.status != 409:
                    raise
                return
            log.info("the API server passes requests on to this program", extra={"api": group_version})
        owner = _service_of(found)
        if owner != _service_of(wanted):
            self.settings.owned_elsewhere(name, owner)
            return
        self.settings.owned_elsewhere(name, "")
        held = decoded(found["spec"].get("caBundle"))
        trusted = trusting(held, authority, before) if authority else held
        owners = wanted["metadata"]["ownerReferences"]
        if trusted != held or found["metadata"].get("ownerReferences") != owners:
            metadata = {"resourceVersion": found["metadata"]["resourceVersion"], "ownerReferences": owners}
            body = {"metadata": metadata, **({"spec": {"caBundle": encoded(trusted)}} if trusted else {})}
            await self.api.merge(APISERVICES, "", name, body)

    async def _owner(self) -> dict[str, Any]:
        """The ClusterRole that owns the APIServices. Raises NoOwnerError, ApiError, Unreachable."""
        name = self.settings.api_services_role
        try:
            return await self.api.get(CLUSTER_ROLES, "", name)
        except ApiError as exc:
            if exc.status not in (403, 404):
                raise
            raise NoOwnerError(exc, name) from None

    async def _correct(self, kind: Kind, configuration: dict[str, Any], authority: str, before: str) -> None:
        hooks = configuration.get("webhooks") or []
        wanted = [trusted_hook(hook, authority, before) for hook in hooks]
        if wanted != hooks:
            meta = configuration["metadata"]
            body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "webhooks": wanted}
            await self.api.merge(kind, "", meta["name"], body)
            log.info("the API server trusts the webhook's certificate now", extra={"configuration": meta["name"]})

    async def _renew(self, use: Callable[[Pair], None]) -> None:
        # A random delay keeps replicas from renewing at the same time.
        late = random.uniform(0, 10 * _POLL_INTERVAL)
        while True:
            await asyncio.sleep(self.pause)
            if (self.clock() - self._renewal).total_seconds() < late:
                continue
            try:
                use(await self.current())
            except (ApiError, Unreachable) as exc:
                log.warning("the webhook's certificate could not be replaced yet: %s", exc)

    async def _follow(self, kind: Kind, name: str) -> None:
        """Write the authority into a configuration whenever that is created again or lacks the authority."""

        async def check(configuration: dict[str, Any] | None) -> None:
            if self._pair and configuration is not None:
                await self._correct(kind, configuration, self._pair.authority, "")

        await self._follow_one(kind, name, check)

    async def _follow_api_service(self, group_version: str) -> None:
        """Register again whenever the APIService is removed or lacks the authority.

        Another program that had the APIService may be the one that removes it.
        """

        async def check(_: dict[str, Any] | None) -> None:
            await self._register(group_version, self._pair.authority if self._pair else "")

        await self._follow_one(APISERVICES, api_service_name(group_version), check)

    async def _follow_aggregator(self, use: Callable[[Aggregator], None]) -> None:
        """Call `use` with the aggregation layer now, and when its ConfigMap changes."""
        known = False

        async def check(config_map: dict[str, Any] | None) -> None:
            nonlocal known
            found = aggregator_of(config_map)
            known = not found.why_unknown
            use(found)

        def refused(exc: ApiError) -> None:
            # An API server that has just started may briefly deny a request that it allows later.
            if not known:
                use(unreadable(exc.message))

        await self._follow_one(CONFIG_MAPS, AGGREGATION_CONFIG_MAP, check, AGGREGATION_NAMESPACE, refused)

    async def _follow_one(
        self, kind: Kind, name: str, check: Callable[[dict[str, Any] | None], Awaitable[None]], namespace: str = "",
        refused: Callable[[ApiError], None] = lambda exc: None,
    ) -> None:  # fmt: skip
        """Call `check` with an object now and after each change, and with None while it does not exist.

        `refused` is called if the API server denies the request.
        """
        fields = f"metadata.name={name}"
        pause = _FIRST_RETRY
        while True:
            try:
                listing = await self.api.list_objects(kind, namespace, fields=fields)
                for found in listing.items or (None,):
                    await check(found)
                async for event, one in self.api.watch(kind, listing.version, namespace, fields=fields):
                    if event in ("ADDED", "MODIFIED", "DELETED"):
                        await check(None if event == "DELETED" else one)
                pause = _FIRST_RETRY
            except (ApiError, Unreachable) as exc:
                log.warning("watching the %s %s: %s", kind.kind, name, exc)
                if isinstance(exc, ApiError) and exc.status == 403:
                    refused(exc)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_RETRY)

    async def _follow_folder(self, use: Callable[[Pair], None]) -> None:
        folder = Path(self.settings.folder)
        served = None
        while True:
            try:
                pair = _read(folder)
                if pair != served:
                    use(pair)
                    served = pair
            except (OSError, ValueError, ssl.SSLError) as exc:
                log.warning("the webhook's certificate in %s cannot be read: %s", folder, exc)
            await asyncio.sleep(self.pause)


def trusted_hook(hook: dict[str, Any], authority: str, before: str) -> dict[str, Any]:
    """One webhook of a configuration, with a caBundle that contains `authority` and `before`."""
    client = hook.get("clientConfig") or {}
    held = decoded(client.get("caBundle"))
    wanted = trusting(held, authority, before)
    if wanted == held:
        return hook
    return {**hook, "clientConfig": {**client, "caBundle": encoded(wanted)}}


def api_service(group_version: str, settings: Settings, role: dict[str, Any]) -> dict[str, Any]:
    """The APIService that registers this server for GROUP/VERSION, without a caBundle.

    The ClusterRole `role` owns it.
    """
    group, _, version = group_version.partition("/")
    name = api_service_name(group_version)
    owner = {"apiVersion": CLUSTER_ROLES.api_version, "kind": CLUSTER_ROLES.kind, "name": role["metadata"]["name"]}
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {PROGRAM_LABEL: settings.component},
        "ownerReferences": [{**owner, "uid": role["metadata"]["uid"]}],
    }
    if settings.folder:
        metadata["annotations"] = {"cert-manager.io/inject-ca-from": f"{settings.namespace}/{settings.secret}"}
    spec = {
        "group": group,
        "version": version,
        "service": {"namespace": settings.namespace, "name": settings.service, "port": 443},
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    return {"apiVersion": APISERVICES.api_version, "kind": APISERVICES.kind, "metadata": metadata, "spec": spec}


def _service_of(one: dict[str, Any]) -> str:
    """The Service of an APIService, as NAMESPACE/NAME."""
    service = one["spec"].get("service")
    return f"{service['namespace']}/{service['name']}" if service else "the API server"


def _read(folder: Path) -> Pair:
    """The pair in a folder, which is like a mounted Secret of type kubernetes.io/tls.

    Raises OSError, UnicodeDecodeError.
    """
    return Pair("", (folder / "tls.crt").read_text(), (folder / "tls.key").read_text())
