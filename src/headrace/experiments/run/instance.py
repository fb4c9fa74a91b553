"""Target `instance`: sub-instances of a running instance, by default the one in FLUX_URI."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from headrace.experiments.values import Cell, Experiment
from headrace.formats.spec import jobspec_build
from headrace.formats.spec.eventlog import decode_line
from headrace.formats.spec.job_exception import CANCEL, FATAL, is_fatal
from headrace.formats.spec.os_error import text_of
from headrace.wire.client.handle import Handle
from headrace.wire.query.resource_sets import SchedulerResources
from headrace.wire.query.submission import jobspec_request
from headrace.wire.query.uri import reachable

from .instance_place import InstancePlace
from .jobs import Jobspec, Lost
from .places import Opening, Place, PlaceError, TargetError


class InstanceTarget:
    """Sub-instances in the instance at `uri`, which are jobs with names that begin with `token`.

    Raises TargetError if the instance cannot be reached.
    """

    is_one_for_each_shape = False

    def __init__(
        self,
        experiment: Experiment,
        uri: str,
        token: str,
        environment: dict[str, str],
        jobspecs: Callable[[Cell], Jobspec],
    ) -> None:
        self._uri = uri
        self._token = token
        self._environment = environment
        self._jobspecs = jobspecs
        self._experiment = experiment
        with self._connect() as handle:
            try:
                up = SchedulerResources(handle.rpc("resource.sched-status", nodeid=0)).state("up")
            except OSError as exc:
                raise TargetError(f"the instance {handle.uri} does not tell its nodes: {text_of(exc)}") from None
        # As many runs at a time as fit.
        self.nodes = self.jobs = max(1, up.nnodes)
        self.facts: dict[str, Any] = {"uri": uri, "nodes": up.nodelist}
        self._lock = threading.Lock()
        self._ids: set[int] = set()
        self._stopped = False

    def open(self, opening: Opening) -> Place:
        with self._connect() as handle:
            try:
                id = self._submit(handle, opening)
                uri = self._wait(handle, id)
            except OSError as exc:
                raise TargetError(f"the instance {handle.uri} was lost: {text_of(exc)}") from None
        try:
            place = InstancePlace(uri, self._experiment, self._jobspecs, lambda: self._end(id))
            with Handle(uri) as handle:
                handle.rpc("state-machine.wait").get()
        except OSError as exc:
            self._end(id)
            raise Lost(f"the sub-instance {uri} was lost: {text_of(exc)}") from None
        return place

    def close(self) -> None:
        """Does nothing: all that there is belongs to places."""

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            ids = list(self._ids)
        for id in ids:
            self._end(id)

    def _connect(self) -> Handle:
        try:
            return Handle(reachable(self._uri) if self._uri else None)
        except OSError as exc:
            raise TargetError(f"cannot reach the instance {self._uri or 'in FLUX_URI'}: {text_of(exc)}") from None

    def _submit(self, handle: Handle, opening: Opening) -> int:
        found = jobspec_build.from_nest_command(
            [],
            num_slots=opening.size,
            num_nodes=opening.size,
            exclusive=True,
            broker_opts=["-Sbroker.rc2_none=1"],
            environment=self._environment,
            cwd=self._experiment.folder,
            name=f"{self._token}-{opening.number}",
        )
        with self._lock:
            if self._stopped:
                raise Lost("the experiment was stopped")
            id = int(handle.rpc("job-ingest.submit", payload=jobspec_request(found)).get()["id"])
            self._ids.add(id)
        return id

    def _wait(self, handle: Handle, id: int) -> str:
        """Wait for the sub-instance and return its URI. Raises PlaceError, Lost, OSError."""
        for answer in handle.stream("job-info.eventlog-watch", {"id": id, "path": "eventlog", "flags": 0}):
            event = decode_line(answer["event"])
            context: dict[str, Any] = event.context or {}
            if event.name == "memo" and "uri" in context:
                return reachable(context["uri"])
            if is_fatal(event.name, context):
                text = f"sub-instance of {self._token}: {context['type']}: {context.get('note', '')}"
                raise PlaceError(text) if context["type"] == "alloc" else Lost(text)
        raise Lost("the sub-instance ended before it was up")

    def _end(self, id: int) -> None:
        with self._lock:
            self._ids.discard(id)
        with contextlib.suppress(OSError, TargetError), self._connect() as handle:
            handle.rpc("job-manager.raise", {"id": id, "type": CANCEL, "severity": FATAL}).get()
            # Its nodes are free for the next place when it has ended.
            for _ in handle.stream("job-info.eventlog-watch", {"id": id, "path": "eventlog", "flags": 0}):
                pass


def end_leftovers(uri: str, token: str) -> None:
    """Cancel the sub-instances of a run that was killed. Raises TargetError."""
    from headrace.wire.query.listing import Query, list_jobs

    query = Query(count=0)
    query.filter("pending,running")
    try:
        with Handle(reachable(uri) if uri else None) as handle:
            for job in list(list_jobs(handle, query, ["id", "name"])):
                if str(job.get("name", "")).startswith(f"{token}-"):
                    with contextlib.suppress(OSError):
                        handle.rpc("job-manager.raise", {"id": job["id"], "type": CANCEL, "severity": FATAL}).get()
    except OSError as exc:
        raise TargetError(f"cannot reach the instance {uri or 'in FLUX_URI'}: {text_of(exc)}") from None
