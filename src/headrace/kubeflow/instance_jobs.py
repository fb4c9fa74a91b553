"""Jobs of a running instance. It stores them, so they outlive this process and others can find them."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.flux_jobs.read.cluster import ForeignCluster
from headrace.formats.spec.eventlog import Event, decode, decode_line
from headrace.formats.spec.job_exception import CANCEL, FATAL
from headrace.formats.spec.job_state import INACTIVE
from headrace.wire.client.handle import Handle
from headrace.wire.client.installation import with_flux
from headrace.wire.query import QueryError
from headrace.wire.query import uri as uris
from headrace.wire.query.listing import Query, list_jobs
from headrace.wire.query.submission import Caller, jobspec_request

from .build import read_record
from .jobs import NotFoundError

_log = logging.getLogger(__name__)
_END_TIMEOUT = 60.0  # seconds that a job has to end after it was canceled


class InstanceJobs:
    """The jobs of the SDK in the instance at `uri`.

    Methods raise RuntimeError if the instance cannot be reached, and NotFoundError for an invalid address.
    """

    local = False

    def __init__(self, uri: str) -> None:
        self._uri = uri
        # Jobspecs by job id; None for jobs that are not the SDK's. They do not change.
        self._known: dict[int, Any] = {}

    def variables(self) -> Mapping[str, str]:
        return with_flux(Caller(_log.warning).environment(())[0])

    def environment(self, name: str) -> str:
        # Each node makes its own environment, because nodes need not share a file system.
        return ""

    def start(self, name: str, cluster: ForeignCluster, jobspec: Any) -> None:
        if self.find(name) is not None:
            raise RuntimeError(f"TrainJob {name} already exists")
        with self.connected() as handle:
            id = handle.rpc("job-ingest.submit", payload=jobspec_request(jobspec)).get()["id"]
            # The response arrives when listings contain the job.
            handle.rpc("job-list.list-id", {"id": id, "attrs": []}).get()

    def find(self, name: str) -> InstanceJob | None:
        query = Query(count=0)
        query.add("name", [name])
        return next(iter(self._list(query)), None)

    def all(self) -> list[InstanceJob]:
        return self._list(Query(count=0))

    def _list(self, query: Query) -> list[InstanceJob]:
        with self.connected() as handle:
            ids = [job["id"] for job in list_jobs(handle, query, [])]
            unread = [id for id in ids if id not in self._known]
            calls = [handle.rpc("job-info.lookup", {"id": id, "keys": ["jobspec"], "flags": 0}) for id in unread]
            for id, call in zip(unread, calls):
                try:
                    jobspec = json.loads(call.get()["jobspec"])
                except OSError as exc:
                    # The job belongs to another user, or has been purged meanwhile.
                    if exc.errno not in (errno.EPERM, errno.ENOENT):
                        raise
                    jobspec = None
                self._known[id] = jobspec if read_record(jobspec) is not None else None
        return [InstanceJob(self, id, self._known[id]) for id in ids if self._known[id] is not None]

    def forget(self, id: int) -> None:
        """Omit a deleted job from listings that may still contain it for a moment."""
        self._known[id] = None

    @contextlib.contextmanager
    def connected(self) -> Iterator[Handle]:
        """A connection to the instance. Raises RuntimeError, and NotFoundError for an invalid address."""
        try:
            with Handle(uris.resolve(self._uri)) as handle:
                yield handle
        except QueryError as exc:
            raise NotFoundError(f"uri: {self._uri}: {exc}") from None
        except TimeoutError:
            raise
        except OSError as exc:
            raise RuntimeError(f"the instance {self._uri}: {exc.strerror or exc}") from exc


class InstanceJob:
    """One job, by its id in the instance."""

    def __init__(self, jobs: InstanceJobs, id: int, jobspec: Any) -> None:
        self._jobs = jobs
        self._id = id
        self.jobspec = jobspec

    def read(self, path: str, follow: bool = False) -> Iterator[Event]:
        request = {"id": self._id, "flags": 0}
        with self._jobs.connected() as handle:
            try:
                if follow:
                    for answer in handle.stream("job-info.eventlog-watch", {**request, "path": path}):
                        yield decode_line(answer["event"])
                else:
                    yield from decode(handle.rpc("job-info.lookup", {**request, "keys": [path]}).get()[path])
            except OSError as exc:
                # The job has not written this log.
                if exc.errno != errno.ENOENT:
                    raise

    def lost(self) -> str:
        # An instance does not lose jobs.
        return ""

    def delete(self) -> None:
        cancel = {"id": self._id, "severity": FATAL, "type": CANCEL, "note": "deleted by the Kubeflow SDK"}
        with self._jobs.connected() as handle:
            try:
                handle.rpc("job-manager.raise", cancel).get()
            except OSError as exc:
                # The job has ended already.
                if exc.errno != errno.ENOENT:
                    raise
            end = handle.rpc("job-list.list-id", {"id": self._id, "attrs": ["state"], "state": INACTIVE})
            try:
                end.get(_END_TIMEOUT)
            except TimeoutError:
                raise TimeoutError(f"the job is still running {_END_TIMEOUT:.0f} s after it was canceled") from None
            handle.rpc("job-manager.purge-id", {"id": self._id, "force": True}).get()
        self._jobs.forget(self._id)
