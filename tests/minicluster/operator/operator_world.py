"""One operator on a simulated API server, step by step: every step is a look at a MiniCluster with caches that are up
to date, and ends where the operator would wait.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

from msgspec.structs import replace
from simulated_api import NOW, Server

from headrace.formats.exposition.metrics import Metrics
from headrace.k8s.objects.kinds import CONFIG_MAPS, JOBS, LEASES, MINICLUSTERS, PODS, SERVICES
from headrace.k8s.runtime.cache import Cache
from headrace.k8s.runtime.controller import Controller, Shared
from headrace.minicluster.operator.actions import Actions
from headrace.minicluster.operator.controller import Operator, Options
from headrace.minicluster.operator.core.observed import Lead, Observed

Object = dict[str, Any]


def minicluster(**spec: Any) -> Object:
    """A MiniCluster `hello` of two pods that says hello."""
    full = {"size": 2, "containers": [{"image": "busybox", "command": "echo hello"}], **spec}
    return {
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": {"name": "hello", "namespace": "ns"},
        "spec": full,
    }


class SimulatedLinks:
    """The connection to the lead: `said` is what it says of itself, `told` what it was asked to do, `breach` why it
    was closed.
    """

    def __init__(self) -> None:
        self.said: Lead | None = None
        self.breach = ""
        self.asked: list[Object] = []

    def lead(self, uid: str) -> Lead | None:
        return self.said

    def closed(self, uid: str) -> str:
        return self.breach

    def ask(self, uid: str, request: Object) -> None:
        if request not in self.asked:
            self.asked.append(request)

    def address(self, uid: str) -> str:
        return "tcp://lead"

    def connect(self, uid: str, address: str, keys: object) -> None:
        pass

    def drop(self, uid: str) -> None:
        self.said = None


class Looks:
    """Looks of one controller at the object `ns/hello` on a simulated API server; `now` is the time of the next one, in
    seconds since the epoch. Who has looks knows the `controller`, and what its watches tell (`see`).
    """

    controller: Controller
    links: SimulatedLinks

    def __init__(self, server: Server | None = None) -> None:
        self.server = server or Server()
        self.now = NOW

    def see(self) -> None:
        raise NotImplementedError

    def say(self, **news: Any) -> None:
        """The lead has news of itself."""
        self.links.said = replace(self.links.said or Lead(state="running"), **news)

    def look(self) -> None:
        """One look. Raises what the operator's worker would report."""
        self.see()
        with mock.patch.object(self.controller, "reconcile", _looking_ahead(self.controller.reconcile)):
            _run(self.controller.reconcile_key(("ns", "hello"), self.now))

    def settle(self, looks: int = 20) -> None:
        """Look, and let the Job controller turn, until nothing changes; time passes between looks."""
        for _ in range(looks):
            before = self.server._version, len(self.server.objects)
            self.now += 3.0
            self.look()
            self.server.control_jobs()
            if before == (self.server._version, len(self.server.objects)):
                return
        raise AssertionError(f"still changing after {looks} looks: {self.server.requests[-10:]}")


class World(Looks):
    def __init__(self, server: Server | None = None) -> None:
        super().__init__(server)
        self.restart()

    def restart(self) -> None:
        """Another operator, which has seen nothing yet."""
        shared = Shared(self.server, Metrics(), "headrace-operator")  # type: ignore[arg-type]
        self.watches = shared.watches
        self.operator = Operator(shared, Options())
        self.operator.links = self.links = SimulatedLinks()  # type: ignore[assignment]
        self.operator._executor._ask_lead = self.links.ask
        self.controller = self.operator.controller

    def apply(self, cluster: Object) -> Object:
        return self.server.add(MINICLUSTERS, "ns", cluster)

    def edit(self, **spec: Any) -> None:
        """As kubectl patch does."""
        self.server._merge(MINICLUSTERS, "ns", "hello", {"spec": spec}, "")

    @property
    def cluster(self) -> Object:
        found = self.server.one("miniclusters", "hello")
        assert found is not None
        return found

    @property
    def status(self) -> Object:
        return dict(self.cluster.get("status") or {})

    def see(self) -> None:
        """The watches have told everything."""
        caches = {
            MINICLUSTERS: self.operator.clusters, JOBS: self.operator.jobs, PODS: self.operator.pods,
            CONFIG_MAPS: self.operator.config_maps, SERVICES: self.operator.services, LEASES: self.operator.leases,
        }  # fmt: skip
        for kind, cache in caches.items():
            ours = [one for one in self.server.all(kind.plural) if kind in (MINICLUSTERS, LEASES) or _is_ours(one)]
            # Listed objects do not say their kind.
            listed = [{key: one[key] for key in one if key not in ("kind", "apiVersion")} for one in ours]
            cache.replace(map(cache.trimmed, listed))

    def changed(self, cache: Cache, item: Object) -> None:
        """The watch that fills a cache tells of a change."""
        (watched,) = [one for one in self.watches._watched.values() if one.cache is cache]
        watched.changed(item)

    def names(self, plural: str) -> list[str]:
        return [one["metadata"]["name"] for one in self.server.all(plural)]

    def events(self) -> list[str]:
        return [one["reason"] for one in self.server.all("events")]


def _looking_ahead(reconcile: Callable[[Observed, float], Actions]) -> Callable[[Observed, float], Actions]:
    """A reconcile that asks for the next one at a time that has passed would be repeated for ever."""

    def looking_ahead(observed: Observed, now: float) -> Actions:
        actions = reconcile(observed, now)
        assert actions.requeue_at is None or actions.requeue_at > now
        return actions

    return looking_ahead


def _is_ours(item: Object) -> bool:
    return (item["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") == "headrace"


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits: the simulated server answers at once."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise AssertionError("the operator waits for something that is not its API server")
