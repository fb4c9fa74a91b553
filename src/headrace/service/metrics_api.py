"""Kubernetes custom metrics of one instance, served by `headrace metrics-api start`.

The metrics have the paths of flux-metrics-api, so its APIService and autoscalers written for it work with this service.
Users can add metrics in a Python file.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import runpy
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import headrace
from headrace.formats.spec.message import use_json_codec
from headrace.k8s import metrics_api as api
from headrace.k8s.metrics_api import CUSTOM, DEMAND_NODES, IDLE_SECONDS, JOB_COUNTS, NODES_UP, Described, Refused
from headrace.k8s.objects.timestamps import text_of
from headrace.k8s.runtime.credentials import pod_namespace
from headrace.service.broker_link import Broker
from headrace.service.metrics import Numbers, ask
from headrace.service.middleware import Methods
from headrace.service.serve import Server, configuration, run_until_signal
from headrace.service.settings import SettingsError
from headrace.wire.client.installation import FOLDERS

DEFAULT_PATH = f"/apis/{CUSTOM}"
DEFAULT_SERVICE = "custom-metrics-apiserver"
DEFAULT_NAMESPACE = "flux-operator"
# Requests within this many seconds share one snapshot of the instance.
_FRESH = 1.0
# A metric from a user's file: a function of the handle (flux.Flux).
UserMetric = Callable[[Any], Any]

BUILT_IN: Mapping[str, Callable[[Numbers], float]] = {
    "node_cores_free_count": lambda numbers: numbers.resources["free"]["ncores"],
    "node_cores_up_count": lambda numbers: numbers.resources["up"]["ncores"],
    "node_free_count": lambda numbers: numbers.resources["free"]["nnodes"],
    NODES_UP: lambda numbers: numbers.resources["up"]["nnodes"],
    # flux-metrics-api has this metric. It is practically always 0, because jobs leave the state at once.
    "job_queue_state_new_count": lambda numbers: numbers.jobs.get("new", 0),
    **{
        name: lambda numbers, state=state: numbers.jobs.get(state, 0)  # type: ignore[misc]
        for state, name in JOB_COUNTS.items()
    },
    DEMAND_NODES: lambda numbers: numbers.demand,
    IDLE_SECONDS: lambda numbers: numbers.idle,
}


@dataclass(frozen=True)
class Options:
    """Options of `headrace metrics-api start`. `uri` is the broker's.

    Metrics are served for `namespaces` only. The first one is the namespace of the Service.
    """

    uri: str = ""
    namespaces: tuple[str, ...] = (DEFAULT_NAMESPACE,)
    service_name: str = DEFAULT_SERVICE
    api_path: str = DEFAULT_PATH
    user_metrics: Mapping[str, UserMetric] = field(default_factory=dict)
    cache: bool = True


def read_user_file(path: str) -> dict[str, UserMetric]:
    """Read the metrics of a user's file. Raises SettingsError.

    Each function that the file defines is a metric, unless its name begins with "_". It takes one argument, the handle.
    """
    sys.path.insert(0, FOLDERS["python_path"])
    try:
        names = runpy.run_path(path, run_name=Path(path).stem)
    except Exception as exc:  # whatever users' code raises
        raise SettingsError(f"{path}: {type(exc).__name__}: {exc}") from None
    functions: dict[str, UserMetric] = {
        name: one
        for name, one in names.items()
        if inspect.isfunction(one) and one.__code__.co_filename == path and not name.startswith("_")
    }
    if not functions:
        raise SettingsError(f"{path} has no function; each function would be a metric")
    for name, function in functions.items():
        if len(inspect.signature(function).parameters) != 1:
            raise SettingsError(f"{path}: {name} must take one argument, the handle (flux.Flux)")
        if name in BUILT_IN:
            raise SettingsError(f"{path}: {name} is a metric already")
    return functions


class Source:
    """The values of all metrics, built-in ones and users'."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._link = Broker(options.uri).link(None)
        self._numbers: Numbers | None = None
        self._asked_at = 0.0
        self._handle: Any = None
        self._handle_lock = asyncio.Lock()

    @property
    def names(self) -> list[str]:
        return [*BUILT_IN, *self._options.user_metrics]

    async def value(self, name: str) -> float:
        """The value of a metric.

        Raises LookupError for an unknown metric, OSError, and any exception of a user's function.
        """
        if name in BUILT_IN:
            return BUILT_IN[name](await self._fresh())
        # Only one thread at a time may use a handle.
        async with self._handle_lock:
            return await asyncio.to_thread(self._of_user, self._options.user_metrics[name])

    async def _fresh(self) -> Numbers:
        now = time.monotonic()
        if self._numbers is None or not self._options.cache or now > self._asked_at + _FRESH:
            self._numbers, self._asked_at = await ask(self._link), now
        return self._numbers

    def _of_user(self, function: UserMetric) -> float:
        if self._handle is None:
            import flux

            self._handle = flux.Flux(self._options.uri) if self._options.uri else flux.Flux()
        value = function(self._handle)
        if not isinstance(value, (int, float)):
            raise TypeError(f"a metric is a number, not {value!r}")
        return value


def create_app(options: Options) -> Starlette:
    """The ASGI application."""
    source = Source(options)
    about = Described("Service", "v1", options.namespaces[0], options.service_name)

    async def values(request: api.Request) -> dict[str, Any]:
        namespace = request.fields.get("namespace", about.namespace)
        if namespace not in options.namespaces:
            raise Refused(404, f"there are metrics for namespace {about.namespace} only, not for {namespace}")
        metric = request.metric(source.names)
        try:
            found = [(about._replace(namespace=namespace), await source.value(metric))]
            return api.custom_values(metric, found, text_of(time.time()), request.path)
        except ConnectionError as exc:
            raise Refused(503, str(exc.strerror or exc)) from None
        except Exception as exc:  # whatever users' functions raise
            raise Refused(500, f"{metric}: {type(exc).__name__}: {exc}") from None

    async def refused(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, HTTPException)
        body = msgspec.json.encode(api.failure(exc.status_code, exc.detail))
        return Response(body, exc.status_code, media_type="application/json")

    path, described = options.api_path.rstrip("/"), api.constant(_openapi(options.api_path))
    listing = api.lists({CUSTOM: [f"services/{name}" for name in source.names]})
    found = {
        "/apis": listing["/apis"],
        path: listing[DEFAULT_PATH],
        "/openapi/v2": api.constant({"swagger": "2.0", "info": _INFO, "paths": {}}),
        **{one: described for one in ("/openapi/v3", f"{path}/schema", f"{path}/openapi/v2", f"{path}/openapi/v3")},
        f"{path}/namespaces/{{namespace}}/metrics/{{metric}}": values,
        f"{path}/namespaces/{{namespace}}/{{resource}}/{{name}}/{{metric}}": values,
        f"{path}/{{resource}}/{{name}}/{{metric}}": values,
    }
    return Starlette(
        routes=[Route(one, _answering(page)) for one, page in found.items()],
        middleware=[Middleware(Methods)],
        exception_handlers={HTTPException: refused},
    )


def _answering(page: api.Page) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        asked = api.Request(request.url.path, request.path_params, request.query_params)
        status, body = await api.answer(page, asked)
        return Response(body, status, media_type="application/json")

    return answer


_INFO = {"title": "Headrace metrics", "version": headrace.__version__}


def _openapi(path: str) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("namespace", "resource", "name", "metric")
    ]
    get = {"summary": "A metric", "parameters": parameters, "responses": {"200": {"description": "MetricValueList"}}}
    paths = {f"{path}/namespaces/{{namespace}}/{{resource}}/{{name}}/{{metric}}": {"get": get}}
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths}


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free port. Raises SettingsError."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as exc:
        raise SettingsError(f"cannot listen at {host}:{port}: {exc.strerror or exc}") from None


def run(options: Options, sock: socket.socket, certificate: tuple[str, str] | None) -> None:
    """Serve until SIGINT or SIGTERM. Raises BrokerUnreachable if there is no broker at the start."""
    use_json_codec(msgspec.json.encode, msgspec.json.decode)
    config = configuration(create_app(options), certificate, lifespan="off")
    scheme, (host, port) = "https" if certificate else "http", sock.getsockname()[:2]

    def started() -> None:
        at = f"[{host}]" if ":" in host else host
        print(f"Serving {scheme}://{at}:{port}{options.api_path}", flush=True)

    async def serve() -> None:
        broker = Broker(options.uri)
        await broker.link(None).call("attr.get", {"name": "size"})
        broker.close()
        await Server(config, started, lambda: None).serve([sock])

    try:
        run_until_signal(serve())
    finally:
        sock.close()


def own_namespace() -> str:
    """The namespace of the pod that this process runs in; DEFAULT_NAMESPACE outside of pods."""
    return pod_namespace() or os.environ.get("POD_NAMESPACE") or DEFAULT_NAMESPACE
