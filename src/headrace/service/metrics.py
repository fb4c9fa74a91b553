"""`GET /metrics` for Prometheus: metrics of the instance, and of the service's own requests.

A request needs a token, unless it comes from this machine. No label names a user or a job, because a reader of metrics
need not be allowed to see jobs.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.formats.exposition.histogram import Histogram, from_object
from headrace.formats.exposition.metrics import CONTENT_TYPE, Labels, Metrics
from headrace.formats.spec.job_state import STATE_BITS
from headrace.service import instance, problems, service
from headrace.service.broker_link import BrokerLink
from headrace.service.people import AdminsOnly

_STATES = ("allocated", "free", "down")
PATH = "/metrics"
_INTERFACES = ("v1", "v2", "static", "metrics")


def demand_nodes(busy: int, wanted: dict[str, Any], cores_per_node: int) -> int:
    """The number of nodes that all jobs need at the same time.

    `busy` nodes are in use, and each pending job needs nodes of its own. `wanted` is the `demand` of job-list.metrics.
    """
    shared: int = sum(jobs * -(-cores // max(cores_per_node, 1)) for cores, jobs in wanted["cores"])
    return busy + int(wanted["nodes"]) + shared


class Numbers:
    """A snapshot of an instance, from the responses of its broker.

    `resources` is the result of `instance.resources`, `jobs` is the number of jobs by state, and `idle` is in seconds.
    The other attributes are values of metrics by their labels, or histograms.
    """

    def __init__(self, jobs: Any, listed: Any, manager: Any, broker: Any, resources: Any, now: float) -> None:
        self.jobs: dict[str, int] = jobs["job_states"]
        self.states: dict[Labels, float] = {}
        others = Counter(jobs["job_states"])
        for queue in jobs["queues"]:
            others.subtract(queue["job_states"])
        for name, states in (*((one["name"], one["job_states"]) for one in jobs["queues"]), ("", others)):
            for state in STATE_BITS:
                self.states[state, name] = states[state]
        self.results: dict[Labels, float] = {(name,): count for name, count in listed["results"].items()}
        self.wait, self.run = from_object(listed["wait"]), from_object(listed["run"])
        since = listed["idle_since"]
        self.idle = 0.0 if since is None else max(now - since, 0.0)
        self.turns = from_object(broker["loop"]["turns"])
        # An instance without a state directory has no journal, and so no sync times.
        self.syncs = from_object(manager["durable"]["sync_times"]) if "durable" in manager else Histogram()
        self.resources = resources
        nodes = Counter(node["state"] for node in resources["nodes"])
        self.nodes: dict[Labels, float] = {(state,): nodes[state] for state in instance.NODE_STATES}
        self.cores: dict[Labels, float] = {(state,): resources[state]["ncores"] for state in _STATES}
        self.gpus: dict[Labels, float] = {(state,): resources[state]["ngpus"] for state in _STATES}
        busy = nodes["allocated"] + nodes["draining"]
        total = resources["all"]
        self.demand = demand_nodes(busy, listed["demand"], total["ncores"] // max(total["nnodes"], 1))


async def ask(own_link: BrokerLink) -> Numbers:
    """Take a snapshot. Raises BrokerUnreachable, and OSError with the broker's errno and text."""
    topics = ("job-list.job-stats", "job-list.metrics", "job-manager.stats-get", "broker.stats-get")
    calls = (own_link.call(topic, nodeid=0) for topic in topics)
    jobs, listed, manager, broker, resources = await asyncio.gather(*calls, instance.resources(own_link))
    return Numbers(jobs, listed, manager, broker, resources, time.time())


class Collector:
    """The metrics of one service."""

    def __init__(self) -> None:
        self._numbers: Numbers
        self._metrics = metrics = Metrics()
        metrics.gauge("headrace_jobs", "Jobs.", lambda: self._numbers.states, ("state", "queue"))
        metrics.total_of("headrace_jobs_total", "Jobs that ended.", lambda: self._numbers.results, ("result",))
        metrics.gauge("headrace_nodes", "Nodes.", lambda: self._numbers.nodes, ("state",))
        metrics.gauge("headrace_cores", "Cores.", lambda: self._numbers.cores, ("state",))
        metrics.gauge("headrace_gpus", "GPUs.", lambda: self._numbers.gpus, ("state",))
        text = "Nodes that running and pending jobs need at once."
        metrics.gauge("headrace_demand_nodes", text, lambda: {(): self._numbers.demand})
        metrics.gauge("headrace_idle_seconds", "Time without jobs.", lambda: {(): self._numbers.idle})
        text = "Time from the submission of jobs to their starts."
        metrics.histogram_of("headrace_job_wait_seconds", text, lambda: {(): self._numbers.wait})
        metrics.histogram_of("headrace_job_run_seconds", "Time that jobs ran.", lambda: {(): self._numbers.run})
        text = "Duration of turns of broker 0's event loop, during which all other work waits."
        metrics.histogram_of("headrace_loop_lag_seconds", text, lambda: {(): self._numbers.turns})
        text = "Time until records of jobs were on the disk."
        metrics.histogram_of("headrace_journal_sync_seconds", text, lambda: {(): self._numbers.syncs})
        text = "Time until the service began to answer."
        metrics.histogram(REQUESTS, text, ("interface", "status"))

    def request(self, path: str, status: int, seconds: float) -> None:
        first = path[1:].partition("/")[0]
        self._metrics.observe(REQUESTS, seconds, first if first in _INTERFACES else "page", f"{status // 100}xx")

    async def text(self, own_link: BrokerLink) -> str:
        """The metrics in Prometheus's text format. Raises as `ask` does."""
        self._numbers = await ask(own_link)
        return self._metrics.text()


REQUESTS = "headrace_api_request_seconds"


class Timed:
    """Middleware that measures the time until the response to each request begins."""

    def __init__(self, app: ASGIApp, collector: Collector) -> None:
        self._app = app
        self._collector = collector

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def send_timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._collector.request(scope["path"], message["status"], time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, send_timed)


def _is_local(request: Request) -> bool:
    # Behind a proxy, the address of a request is the proxy's, or an address that the client may have chosen.
    if request.client is None or service.of(request).settings.behind_proxy:
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


router = APIRouter()


@router.get(PATH, include_in_schema=False)
async def get_metrics(request: Request) -> Response:
    here = service.of(request)
    is_private = (await here.own_link.call("config.get")).get("access", {}).get("private-mode") is True
    if is_private or not _is_local(request):
        await service.by_header(request)
    if is_private and not here.identity.sees_all:
        raise AdminsOnly("access.private-mode: the numbers of all jobs are for administrators only")
    return Response(await request.app.state.collector.text(here.own_link), media_type=CONTENT_TYPE)


def answer(exc: Exception) -> Response:
    """The response to a request that failed."""
    problem = problems.of(exc)
    return PlainTextResponse(problem.text + "\n", problem.status, problem.headers)
