"""The state of the lead's instance: brokers that are up, jobs by state, demand for nodes.

`Instance` follows the broker by streams through its local socket. An idle instance costs only one request every ten
seconds, which checks whether the broker still answers.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.job_state import ACTIVE, STATE_BITS
from headrace.wire.client.handle import Handle, Rpc

from ...api.channel_messages import MOST_NAMED
from .ending import FAILURE

_ACTIVE = tuple(name for name, bit in STATE_BITS.items() if bit & ACTIVE)
# The maximum number of pending jobs that are read to compute the demand; a MiniCluster never has more nodes.
_MOST_PENDING = 1000
# Timeout in seconds for the last response of a broker that ends.
_FINAL_RPC_TIMEOUT = 5.0
# Seconds between two checks whether the lead's broker answers, and the number of checks without an answer after which
# it counts as silent. This is as long as for followers, which the lead's broker checks (`tbon.torpid_max`, 30 s).
CHECK_PERIOD = 10.0
_MOST_MISSED = 3


class Snapshot(NamedTuple):
    """The fields of `channel_messages.State` except `saved`."""

    state: str
    brokers_up: int
    brokers_silent: int
    silent: str
    jobs: dict[str, int]
    demand_nodes: int
    idle_since: float | None

    def as_object(self) -> dict[str, Any]:
        return self._asdict()


def demand(pending: list[dict[str, Any]], busy: int, cores_per_node: int) -> int:
    """The number of nodes with which all jobs could run at once.

    `busy` nodes are in use, and each job in `pending` (with `nnodes` or `ncores`) needs nodes of its own.
    """
    wanted = 0
    for job in pending:
        cores = job.get("ncores") or job.get("ntasks") or 1
        wanted += job.get("nnodes") or -(-cores // max(cores_per_node, 1))
    return busy + wanted


class Instance:
    """Keeps `snapshot` current, and calls `changed()` after changes.

    Call `connect` when a broker may be running.
    """

    def __init__(self, uri: str, changed: Callable[[], None], now: Callable[[], float] = time.time) -> None:
        self._uri = uri
        self._changed = changed
        self._now = now
        self.handle: Handle | None = None
        self._state = "starting"
        self._online = self._torpid = Idset()
        self._hosts: list[str] = []
        # Whether a check waits for the broker's answer, and the number of checks that were due since.
        self._check_unanswered, self._missed = False, 0
        self._jobs = dict.fromkeys(STATE_BITS, 0)
        self._busy = Idset()
        # The attributes of the instance's only job if it has failed; see `find_failure`.
        self.failed_job: dict[str, Any] = {}
        self._pending: list[dict[str, Any]] = []
        # Whether a request for pending jobs is in progress, and whether jobs have changed since it was sent.
        self._requesting_pending = self._pending_outdated = False
        self._cores_per_node = 1
        self._idle_since: float | None = now()
        # Requests for streams that were refused, for example because the scheduler was not ready yet.
        self._refused: list[tuple[str, dict[str, Any], Callable[[Any], None]]] = []

    @property
    def snapshot(self) -> Snapshot:
        need = demand(self._pending, len(self._busy), self._cores_per_node)
        silent = self._torpid | Idset([] if self.answers else [0])
        up = self._online - silent
        named = islice((self._hosts[rank] for rank in silent if rank < len(self._hosts)), MOST_NAMED)
        hosts = str(Hostlist(named))
        return Snapshot(self._state, len(up), len(silent), hosts, dict(self._jobs), need, self._idle_since)

    def set_state(self, state: str) -> None:
        if state != self._state:
            self._state = state
            if state == "finished":
                self._online = self._torpid = Idset()
            self._changed()

    def connect(self) -> int:
        """Open the connection and follow the broker; returns the connection's descriptor. Raises OSError."""
        self.close()
        self._requesting_pending = False
        self._refused.clear()
        handle = self.handle = Handle(self._uri)
        self._stream(handle, "groups.get", {"name": "broker.online"}, self._take_online)
        self._stream(handle, "groups.get", {"name": "broker.torpid"}, self._take_torpid)
        self._stream(handle, "job-list.job-stats", {}, self._take_stats)
        self._stream(handle, "resource.busy", {}, self._take_busy)
        self.check()
        return handle.fileno()

    def check(self) -> None:
        """Check whether the broker answers. Must be called every `CHECK_PERIOD` seconds."""
        if self.handle is None:
            return
        if self._check_unanswered:
            # Count checks and not seconds, because this process itself may have been stopped.
            self._missed += 1
            if self._missed == _MOST_MISSED:
                self._changed()
            return
        self._check_unanswered = True
        # `read` reports a lost connection.
        with contextlib.suppress(OSError):
            self.handle.rpc("attr.get", {"name": "hostlist"}).then(self._take_hosts)

    def _take_hosts(self, rpc: Rpc) -> None:
        missed, self._check_unanswered, self._missed = self._missed, False, 0
        with contextlib.suppress(OSError):
            self._hosts = list(Hostlist.parse(rpc.get()["value"]))
        if missed >= _MOST_MISSED:
            self._changed()

    @property
    def answers(self) -> bool:
        """Whether the broker has answered recently."""
        return self._missed < _MOST_MISSED

    def close(self) -> None:
        self._check_unanswered, self._missed, self._torpid = False, 0, Idset()
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.close()

    def read(self) -> None:
        """Read and handle received messages. Raises OSError if the connection is lost."""
        if self.handle is not None:
            self.handle.pump(0)

    def dispatch(self) -> None:
        """Handle messages that were read already, for example during a wait for a response."""
        while self.handle is not None and self.handle.dispatch():
            pass

    def count_jobs(self) -> None:
        """Request the current job counts, before the instance ends. Raises OSError."""
        if self.handle is not None:
            self._take_stats(self.handle.rpc("job-list.job-stats", {}).get(_FINAL_RPC_TIMEOUT))

    def find_failure(self) -> None:
        """Set `failed_job` if the instance had only one job, and this job has failed. Raises OSError."""
        others = sum(self._jobs[name] for name in _ACTIVE)
        if self.handle is None or others or self._jobs["inactive"] != 1:
            # With several jobs, only the initial program knows which job decided its exit status.
            return
        rpc = self.handle.stream("job-list.list", {"max_entries": 1, "attrs": list(FAILURE), "constraint": {}})
        for one in rpc.get(_FINAL_RPC_TIMEOUT)["jobs"]:
            self.failed_job = {name: one[name] for name in FAILURE if name in one}

    def _stream(self, handle: Handle, topic: str, body: dict[str, Any], take: Callable[[Any], None]) -> None:
        def answered(rpc: Rpc) -> None:
            try:
                take(rpc.get())
            except OSError:
                # The request is repeated when jobs change. Until then, this part of the snapshot stays the same.
                self._refused.append((topic, body, take))
            else:
                self._changed()

        handle.stream(topic, body, nodeid=0).then(answered)

    def _take_online(self, body: dict[str, Any]) -> None:
        self._online = Idset.parse(body["members"])

    def _take_torpid(self, body: dict[str, Any]) -> None:
        self._torpid = Idset.parse(body["members"])

    def _take_busy(self, body: dict[str, Any]) -> None:
        self._busy = Idset.parse(body["ranks"])

    def _take_stats(self, body: dict[str, Any]) -> None:
        states = body["job_states"]
        self._jobs = {name: int(states.get(name, 0)) for name in STATE_BITS}
        retried, self._refused = self._refused, []
        for topic, asked, take in retried:
            if self.handle is not None:
                self._stream(self.handle, topic, asked, take)
        if any(self._jobs[name] for name in _ACTIVE):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self._now()
        if self._requesting_pending:
            self._pending_outdated = True
        elif self._jobs["sched"] or self._pending:
            self._ask_for_pending()

    def _ask_for_pending(self) -> None:
        if self.handle is None:
            return
        self._requesting_pending, self._pending_outdated = True, False
        found: list[dict[str, Any]] = []
        constraint = {"states": ["sched"]}
        body = {"max_entries": _MOST_PENDING, "attrs": ["nnodes", "ncores", "ntasks"], "constraint": constraint}

        def answered(rpc: Rpc) -> None:
            try:
                found.extend(rpc.get()["jobs"])
            except OSError as exc:
                self._requesting_pending = False
                if exc.errno == errno.ENODATA:
                    self._pending = found
                    self._changed()
                if self._pending_outdated:
                    # The response may lack changes that were made after the request.
                    self._ask_for_pending()

        self.handle.stream("job-list.list", body).then(answered)
        self.handle.rpc("resource.status", {}, nodeid=0).then(self._take_resources)

    def _take_resources(self, rpc: Rpc) -> None:
        with contextlib.suppress(OSError, KeyError, ValueError, TypeError):
            groups = rpc.get()["R"]["execution"]["R_lite"]
            self._cores_per_node = max((len(Idset.parse(one["children"]["core"])) for one in groups), default=1)
