"""Runs controllers as a program: cluster, Lease, caches, workers, webhook, HTTP pages, log, shutdown.

The HTTP pages are for health checks and metrics.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from headrace.formats.exposition.metrics import CONTENT_TYPE, Metrics

from ..objects.kinds import Kind
from . import credentials, lease
from .admission import rotation
from .admission.aggregation import Refusal
from .admission.reviews import Handler
from .api import Api
from .controller import Shared

log = logging.getLogger("headrace.k8s.program")
# The attributes that every log record has.
_RECORD = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime"))


class Serving(Struct, frozen=True, kw_only=True):
    """Options of a process. Addresses are HOST:PORT, "" for none.

    `lease_namespace` "" stands for the namespace of the pod, and outside of pods for `Program.namespace`.

    `webhook_certificate` is a folder with tls.crt and tls.key, "" for the program's own certificate; `webhook_address`
    is the address by which the API server reaches a webhook without a Service in the cluster.
    """

    kubeconfig: str = ""
    context: str = ""
    leader_elect: bool = True
    lease_namespace: str = ""
    metrics_bind: str = ":8080"
    health_bind: str = ":8081"
    webhook_bind: str = ""
    webhook_certificate: str = ""
    webhook_address: str = ""


class Program(Struct, frozen=True, kw_only=True):
    """The description of a program that `serve` runs.

    `api_services`, `api_services_role`, `owned_elsewhere` and `unanswered` are as in `rotation.Settings`.
    """

    # The program's name in Events and metrics, and the name of its Lease.
    component: str
    lease: str
    # The name of the webhook's Service and Secret, and the webhook configurations that receive its certificate.
    webhook: str
    configurations: tuple[tuple[Kind, str], ...]
    # Makes the controllers, and returns the handlers of the webhook by path.
    build: Callable[[Shared], Mapping[str, Handler]]
    # The namespaces to watch; () for all.
    namespaces: tuple[str, ...] = ()
    api_services: tuple[str, ...] = ()
    api_services_role: str = ""
    # The routes of `api_services`. They call their argument with a request, and reject it if a reason is returned.
    routes: Callable[[Refusal], Iterable[web.RouteDef]] = lambda refusal: ()
    owned_elsewhere: Callable[[str, str], None] = lambda name, owner: None
    unanswered: Callable[[str], None] = lambda why: None
    # The namespace of the Lease if the program runs outside of pods; "" for the namespace of the kubeconfig's context.
    namespace: str = ""


async def serve(serving: Serving, program: Program) -> int:
    """Run until SIGTERM or SIGINT (status 0), or until the Lease is lost (status 1, for a restart)."""
    cluster = credentials.find(serving.kubeconfig, serving.context)
    if program.namespace and not cluster.is_of_pod:
        cluster = replace(cluster, namespace=program.namespace)
    metrics = Metrics()
    requests = f"{program.component.replace('-', '_')}_api_requests_total"
    metrics.counter(requests, "Requests to the API server.", ("verb", "resource"))

    def counted(verb: str, plural: str) -> None:
        metrics.count(requests, verb, plural)

    me = program.component
    async with Api(cluster, counted, me) as api, Api(cluster, counted, me, lease.REQUEST_TIMEOUT) as lease_api:
        shared = Shared(api, metrics, program.component, program.namespaces)
        handlers = program.build(shared)
        webhook = _Webhook(api, serving, program, handlers) if serving.webhook_bind else None
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        runners = [
            await _http(serving.metrics_bind, {"/metrics": lambda: (200, metrics.text(), CONTENT_TYPE)}),
            await _http(
                serving.health_bind,
                {
                    "/healthz": lambda: (200, "ok\n", "text/plain"),
                    "/readyz": lambda: (
                        (503, "the caches are not filled yet\n", "text/plain")
                        if not shared.watches.synced
                        else (503, "the webhook does not listen yet\n", "text/plain")
                        if webhook and not webhook.listens
                        else (200, "ok\n", "text/plain")
                    ),
                },
            ),
        ]
        try:
            return await _run(lease_api, shared, serving, program.lease, stop, webhook)
        finally:
            for runner in runners:
                if runner:
                    await runner.cleanup()


class _Webhook:
    """This process's admission webhook; it runs whether or not the process is the leader."""

    def __init__(self, api: Api, serving: Serving, program: Program, handlers: Mapping[str, Handler]) -> None:
        self.listens = False
        self._api = api
        self._handlers = handlers
        self._routes = program.routes
        host, _, port = serving.webhook_bind.rpartition(":")
        self._settings = rotation.Settings(
            namespace=serving.lease_namespace or api.cluster.namespace,
            service=program.webhook,
            secret=program.webhook,
            component=program.component,
            configurations=program.configurations,
            api_services=program.api_services,
            api_services_role=program.api_services_role,
            owned_elsewhere=program.owned_elsewhere,
            unanswered=program.unanswered,
            host=host.strip("[]"),
            port=int(port),
            folder=serving.webhook_certificate,
            address=serving.webhook_address,
        )

    async def run(self) -> None:
        await rotation.serve(self._api, self._settings, self._handlers, self._ready, self._routes)

    def _ready(self, port: int) -> None:
        self.listens = True
        log.info("the webhook listens", extra={"port": port})


async def _run(
    lease_api: Api, shared: Shared, serving: Serving, name: str, stop: asyncio.Event, webhook: _Webhook | None
) -> int:
    election = None
    tasks = [asyncio.create_task(shared.watches.run(), name="watch"), asyncio.create_task(stop.wait(), name="stop")]
    if webhook:
        tasks.append(asyncio.create_task(webhook.run(), name="webhook"))
    try:
        if serving.leader_elect:
            namespace = serving.lease_namespace or lease_api.cluster.namespace
            me = f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}"
            election = lease.Election(lease_api, namespace, name, me, time.monotonic, lease_api.manager)
            if not await _comes_first(election.wait(), tasks):
                return 0 if stop.is_set() else 1
            log.info("leading", extra={"identity": me, "lease": f"{namespace}/{name}"})
            tasks.append(asyncio.create_task(election.lost.wait(), name="lost"))
        await _comes_first(shared.work(), tasks)
        return 0 if stop.is_set() else 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for end in shared.at_end:
            end()
        if election:
            await election.release()


async def _comes_first(work: Coroutine[Any, Any, None], others: list[asyncio.Task[Any]]) -> bool:
    """Run `work` until it or one of `others` ends; returns True if `work` ended first.

    Raises the exception of any of them.
    """
    own = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait([own, *others], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        return own in done
    finally:
        own.cancel()
        await asyncio.gather(own, return_exceptions=True)


async def _http(bind: str, pages: dict[str, Any]) -> web.AppRunner | None:
    """Serve text pages; each returns (status, text, content type)."""
    if not bind:
        return None
    app = web.Application()

    def add(path: str, page: Any) -> None:
        async def answer(request: web.Request) -> web.Response:
            status, text, kind = page()
            return web.Response(status=status, body=text.encode(), headers={"Content-Type": kind})

        app.router.add_get(path, answer)

    for path, page in pages.items():
        add(path, page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = bind.rpartition(":")
    await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
    return runner


class JsonLines(logging.Formatter):
    """One JSON object on each line: time, level, logger, message and the call's `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _RECORD},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """For users: time, level, message and then key=value."""

    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(f" {key}={value}" for key, value in vars(record).items() if key not in _RECORD)
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = f"{clock} {record.levelname:<7} {record.getMessage()}{extra}"
        return text + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def log_to_stderr(style: str, level: str) -> None:
    """`style` is json or text, `level` a lower-case name of a level of package logging."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines())
    root = logging.getLogger("headrace")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
