"""One controller of labelled Jobs on a simulated API server, step by step."""

from __future__ import annotations

import json
from typing import Any

from operator_world import Looks, SimulatedLinks

from flux_jobs.read.samples import container, job
from headrace.flux_jobs.operator.controller import ForeignClusters
from headrace.flux_jobs.operator.names import ID_LABEL, STATUS_ANNOTATION
from headrace.flux_jobs.operator.policy import flux_job
from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE
from headrace.formats.exposition.metrics import Metrics
from headrace.k8s.objects.kinds import JOBS, PODS, SERVICES
from headrace.k8s.runtime.controller import Shared
from headrace.minicluster.operator.builders.images import Images

Object = dict[str, Any]

ID = "0123456789"


def written(options: str = "", size: int = 2, pod: Object | None = None, **fields: Any) -> Object:
    """A Job `hello` with the label, as a user writes it; its container has the name that simulated pods give it."""
    given = pod or {"containers": [container(name="hello")]}
    document = job(options, "hello", size=size, pod=given, **fields)
    document["metadata"]["labels"] = {LABEL_KEY: LABEL_VALUE}
    return document


def admitted(options: str = "", cluster_id: str = ID, **fields: Any) -> Object:
    """The Job as admission makes it."""
    return flux_job(written(options, **fields), Images(), cluster_id)


class JobsWorld(Looks):
    def __init__(self) -> None:
        super().__init__()
        self.restart()

    def restart(self) -> None:
        """Another operator, which has seen nothing yet."""
        shared = Shared(self.server, Metrics(), "headrace-operator")  # type: ignore[arg-type]
        self.clusters = ForeignClusters(shared, "cluster.local")
        self.clusters.links = self.links = SimulatedLinks()  # type: ignore[assignment]
        self.clusters._executor._ask_lead = self.links.ask
        self.controller = self.clusters.controller

    def create(self, body: Object) -> Object:
        return self.server.add(JOBS, "ns", body)

    @property
    def job(self) -> Object:
        found = self.server.one("jobs", "hello")
        assert found is not None
        return found

    @property
    def told(self) -> Object:
        """What the annotation tells; {} before the end."""
        text = self.job["metadata"].get("annotations", {}).get(STATUS_ANNOTATION)
        return dict(json.loads(text)) if text else {}

    def see(self) -> None:
        """The watches have told everything."""
        caches = {
            JOBS: (self.clusters.jobs, LABEL_KEY),
            PODS: (self.clusters.pods, ID_LABEL),
            SERVICES: (self.clusters.controller.owned["Service"], ID_LABEL),
        }
        for kind, (cache, label) in caches.items():
            found = [one for one in self.server.all(kind.plural) if label in one["metadata"].get("labels", {})]
            listed = [{key: one[key] for key in one if key not in ("kind", "apiVersion")} for one in found]
            cache.replace(map(cache.trimmed, listed))
        for pod in self.server.all("pods"):
            list(self.clusters._concerned_by_pod(pod))

    def events(self) -> list[tuple[str, str]]:
        """Reasons and messages of the Events, in their order."""
        found = sorted(self.server.all("events"), key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [(one["reason"], one["message"]) for one in found]
