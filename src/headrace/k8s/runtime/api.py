"""A client of the API server's REST interface, for the operator and our commands.

It uses one aiohttp session. Objects are the dictionaries of the API. Every refusal is an ApiError with the server's own
reason and message. A watch is a stream of (type, object), which the reader restarts when it ends (`watches.Reflector`).
Source: Kubernetes API concepts (verbs, watch, server-side apply), API conventions (Status).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

import aiohttp
import msgspec

from headrace.formats.spec.lines import LineReader

from ..objects.kinds import Kind
from .credentials import Cluster

Object = dict[str, Any]

# The field manager of server-side apply and of creations.
FIELD_MANAGER = "headrace-operator"
# Seconds for a request other than a watch; the API server's own limit is 60.
REQUEST_TIMEOUT = 65.0
# Seconds after which the server ends a watch, so that a dead proxy cannot silence a watch forever. The server ends it
# with a bookmark, from whose version the next watch continues.
WATCH_TIMEOUT = 540
_CHUNK = 500
# Levels of a too deeply nested document that are kept. Kubernetes' objects have some tens of levels, and code that
# walks them uses one or two calls for each level.
KEPT_LEVELS = 150
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')


# What the count of requests calls the path /version.
_VERSION = Kind("", "", "version", "")


class ApiError(Exception):
    """A refusal of the API server.

    `status` is the HTTP status, `reason` the machine-readable reason ("AlreadyExists"), and `details` those of its
    Status (metav1.StatusDetails), {} without any.
    """

    def __init__(self, status: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}


def is_namespace_ending(exc: ApiError) -> bool:
    """True if an object was rejected because its namespace is being deleted."""
    return any(one.get("reason") == "NamespaceTerminating" for one in exc.details.get("causes") or ())


class Unreachable(Exception):
    """The API server did not respond; it is unknown whether it acted on the request."""


class Listing(NamedTuple):
    items: list[Object]
    version: str


class Api:
    """One cluster's API server.

    `counted` is called with the verb and plural of each request. `manager` is the field manager of writes. `timeout` is
    the limit for a request other than a watch, in seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        counted: Callable[[str, str], None] = lambda verb, plural: None,
        manager: str = FIELD_MANAGER,
        timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        self.cluster = cluster
        self.counted = counted
        self.manager = manager
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def get(self, kind: Kind, namespace: str, name: str, subresource: str = "") -> Object:
        return await self._send("get", "GET", kind, kind.path(namespace, name, subresource))

    async def version(self) -> str:
        """The version of the API server, such as v1.34.1. Raises ApiError, Unreachable."""
        return str((await self._send("get", "GET", _VERSION, "/version")).get("gitVersion", ""))

    async def list_objects(
        self,
        kind: Kind,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        trim: Callable[[Object], Object] = lambda item: item,
    ) -> Listing:
        """All matching objects, fetched in chunks, and the resource version from which to watch.

        `trim` reduces each object before it is kept, because very many whole objects may not fit into memory.
        """
        items: list[Object] = []
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(_CHUNK)}
        while True:
            page = await self._send("list", "GET", kind, kind.path(namespace), query)
            items += map(trim, page.get("items") or [])
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                return Listing(items, meta.get("resourceVersion", ""))
            query["continue"] = meta["continue"]

    async def create(self, kind: Kind, namespace: str, body: Object, dry_run: bool = False) -> Object:
        query = {"fieldManager": self.manager, **({"dryRun": "All"} if dry_run else {})}
        return await self._send("create", "POST", kind, kind.path(namespace), query, body)

    async def apply(self, kind: Kind, namespace: str, name: str, body: Object, force: bool = True) -> Object:
        """Server-side apply.

        With metadata.uid in `body`, only the object with that uid is changed, and no object is created.
        """
        full = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        query = {"fieldManager": self.manager, "force": "true" if force else "false"}
        return await self._send(
            "apply", "PATCH", kind, kind.path(namespace, name), query, full, "application/apply-patch+yaml"
        )

    async def merge(self, kind: Kind, namespace: str, name: str, body: Object, subresource: str = "") -> Object:
        """JSON merge patch (RFC 7386): null removes a field; a metadata.uid in `body` must match the object's."""
        path = kind.path(namespace, name, subresource)
        query = {"fieldManager": self.manager}
        return await self._send("patch", "PATCH", kind, path, query, body, "application/merge-patch+json")

    async def patch(self, kind: Kind, namespace: str, name: str, operations: Sequence[Object]) -> Object:
        """JSON patch (RFC 6902). If a test fails, nothing is changed (ApiError, status 422)."""
        path, query = kind.path(namespace, name), {"fieldManager": self.manager}
        return await self._send("patch", "PATCH", kind, path, query, list(operations), "application/json-patch+json")

    async def replace(self, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        """PUT. With metadata.resourceVersion in `body`, it fails if the object has changed since that version."""
        return await self._send("update", "PUT", kind, kind.path(namespace, name), {"fieldManager": self.manager}, body)

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str = "", propagation: str = "Background"
    ) -> None:
        """Delete the object; with `uid`, only the object with that uid."""
        body: Object = {"propagationPolicy": propagation}
        if uid:
            body["preconditions"] = {"uid": uid}
        await self._send("delete", "DELETE", kind, kind.path(namespace, name), None, body)

    async def watch(
        self, kind: Kind, version: str, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        """The changes after `version`: ("ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK", object).

        Ends when the server ends it. Raises ApiError (status 410: the version is too old, list again), Unreachable.
        """
        query = {
            **{"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"},
            **{"timeoutSeconds": str(WATCH_TIMEOUT), "labelSelector": labels, "fieldSelector": fields},
        }
        self.counted("watch", kind.plural)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_TIMEOUT + 30)
        try:
            async with self._open().get(
                self.cluster.server + kind.path(namespace), params=_given(query), headers=await self._headers(),
                timeout=timeout, ssl=self._tls,
            ) as response:  # fmt: skip
                if response.status >= 300:
                    raise await self._refusal(response)
                async for line in _lines(response):
                    event = decoded(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise ApiError(status.get("code", 500), status.get("reason", ""), status.get("message", ""))
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError, msgspec.DecodeError) as exc:
            raise self._unreachable(f"watch of {kind.plural}", exc) from None

    async def stream(
        self, kind: Kind, namespace: str, name: str, subresource: str, query: dict[str, str]
    ) -> AsyncIterator[bytes]:
        """The bytes of a streaming response, such as a pod's log. Raises ApiError, Unreachable."""
        self.counted("get", kind.plural)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        try:
            async with self._open().get(
                self.cluster.server + kind.path(namespace, name, subresource), params=_given(query),
                headers=await self._headers(), timeout=timeout, ssl=self._tls,
            ) as response:  # fmt: skip
                if response.status >= 300:
                    raise await self._refusal(response)
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as exc:
            raise self._unreachable(f"{subresource} of {name}", exc) from None

    async def websocket(
        self, kind: Kind, namespace: str, name: str, subresource: str, query: list[tuple[str, str]], protocol: str
    ) -> Any:
        """An open WebSocket (aiohttp.ClientWebSocketResponse), such as a pod's `exec`. Raises ApiError, Unreachable."""
        self.counted("create", kind.plural)
        url = self.cluster.server + kind.path(namespace, name, subresource)
        # A kubelet sends streams without a media type, and responds with 406 if a type is asked for.
        headers = {**await self._headers(), "Accept": "*/*"}
        try:
            return await self._open().ws_connect(
                url, params=query, headers=headers, protocols=(protocol,), ssl=self._tls, max_msg_size=0
            )
        except aiohttp.WSServerHandshakeError as exc:
            raise ApiError(exc.status, "", f"{subresource} of {name}: {exc.message} ({exc.status})") from None
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as exc:
            raise self._unreachable(f"{subresource} of {name}", exc) from None

    async def _send(
        self, verb: str, method: str, kind: Kind, path: str, query: dict[str, str] | None = None,
        body: Object | list[Object] | None = None, content: str = "application/json",
    ) -> Object:  # fmt: skip
        self.counted(verb, kind.plural)
        headers = await self._headers()
        if body is not None:
            headers["Content-Type"] = content
        try:
            async with self._open().request(
                method, self.cluster.server + path, params=_given(query or {}), headers=headers, ssl=self._tls,
                data=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
            ) as response:  # fmt: skip
                if response.status >= 300:
                    raise await self._refusal(response)
                answer = decoded(await response.read())
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError, msgspec.DecodeError) as exc:
            raise self._unreachable(f"{verb} {kind.plural}", exc) from None
        return answer if isinstance(answer, dict) else {}

    def _unreachable(self, what: str, exc: Exception) -> Unreachable:
        return Unreachable(f"the API server {self.cluster.server}: {_why(exc)} ({what})")

    async def _refusal(self, response: aiohttp.ClientResponse) -> ApiError:
        if response.status == 401:
            self.cluster.identity.forget()
        text = (await response.read()).decode(errors="replace")
        try:
            status = json.loads(text)
            details = status.get("details")
            return ApiError(response.status, status.get("reason", ""), status.get("message", text), details)
        except (ValueError, AttributeError):
            return ApiError(response.status, "", text.strip() or response.reason or "")

    async def _headers(self) -> dict[str, str]:
        token = await self.cluster.identity.token()
        return {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=0)
            timeout = aiohttp.ClientTimeout(total=self._timeout, sock_connect=10)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=True)
        return self._session

    @property
    def _tls(self) -> Any:
        return self.cluster.tls if self.cluster.tls is not None else True


def _why(exc: Exception) -> str:
    """The reason of a connection error, without the names of Python's classes."""
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        cause = exc.certificate_error
        return f"its certificate is refused: {getattr(cause, 'verify_message', '') or cause}"
    if isinstance(exc, aiohttp.ClientConnectorError):
        cause = exc.os_error
        if isinstance(cause, ssl.SSLError):
            return f"TLS: {cause.reason or cause}"
        return os.strerror(cause.errno) if cause.errno and cause.errno > 0 else cause.strerror or str(cause)
    if isinstance(exc, asyncio.TimeoutError):
        return "no answer in time"
    return str(exc) or type(exc).__name__


def _given(query: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in query.items() if value}


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of a stream. An object may be longer than aiohttp's limit for a line."""
    reader = LineReader()
    async for chunk in response.content.iter_any():
        for line in reader.feed(chunk):
            if line:
                yield line


def decoded(raw: bytes) -> Any:
    """The value of a JSON text, cut off at KEPT_LEVELS if it is nested deeper than Python decodes.

    Deeper values become null. A definition that leaves the form of a field open lets users nest an object deeper than
    Python decodes, and such an object would end the watch of its kind. Raises msgspec.DecodeError.
    """
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        return msgspec.json.decode(_cut(raw))


def _cut(raw: bytes) -> bytes:
    parts, depth, kept_from = [], 0, 0
    for token in _TOKEN.finditer(raw):
        sign = token[0]
        if sign in (b"{", b"["):
            depth += 1
            if depth == KEPT_LEVELS + 1:
                parts += [raw[kept_from : token.start()], b"null"]
        elif sign in (b"}", b"]"):
            if depth == KEPT_LEVELS + 1:
                kept_from = token.end()
            depth -= 1
    return b"".join([*parts, raw[kept_from:]])
