"""A session of an experiment: carries out the runs that are left, on all targets side by side.

Each target has a thread, and a thread for each run that it may have at a time. The main thread shows progress, writes
the database and handles signals: the first Ctrl-C lets the running runs end, the second ends them.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from headrace.experiments import values
from headrace.experiments.stats.medians import median_interval
from headrace.experiments.store.folder import STDERR, STDOUT, Folder, FolderError, Owner
from headrace.experiments.store.results import add_results, open_results
from headrace.experiments.values import Cell, Experiment, Result, Run
from headrace.formats.spec.os_error import text_of
from headrace.minicluster.run import local as mini_local
from headrace.minicluster.run import remains
from headrace.storage.database import Database, DatabaseError
from headrace.wire.query.submission import Caller

from . import instance, jobs, measure
from .instance import InstanceTarget
from .jobs import Ended, Jobspec, Lost, Parse
from .local import LocalTarget
from .places import Lease, Opening, PlaceError, Pool, Shape, Target, TargetError
from .schedule import Schedule
from .search import Searcher

_TICK = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Progress(Struct, frozen=True, kw_only=True):
    """How far an experiment is: numbers of runs. `seconds_left` is None until a run has ended."""

    planned: int
    done: int
    failed: int
    running: int
    left: int
    seconds_left: float | None


class Summary(Struct, frozen=True, kw_only=True):
    """How a session ended. `problems` are sentences for users; `interrupted` is a signal, or 0."""

    progress: Progress
    problems: tuple[str, ...]
    interrupted: int = 0


def run(
    folder: Folder, parse: Parse, jobs: int, show: Callable[[Progress], None], warn: Callable[[str], None]
) -> Summary:
    """Carry out the runs of the experiment in `folder` that have not ended.

    At most `jobs` run at a time on each target (0: as many as it allows). `show` is called about ten times a second.
    Raises FolderError, and ValueError for a job that cannot be submitted.
    """
    experiment, plan = folder.load()
    token = f"experiment-{secrets.token_hex(4)}"
    workspace = os.path.join(_short_tempdir(), token)
    owner = Owner(pid=os.getpid(), host=socket.gethostname(), workspace=workspace, token=token)
    # Before the lock and before any thread, because it forks.
    with remains.lifeline(lambda _number: _end_leftovers(owner, experiment)), folder.locked(owner) as former:
        if former:
            _end_leftovers(former, experiment)
        for unfinished in folder.running():
            folder.abandon(unfinished)
        done = folder.results(plan)
        database = _repaired(folder, done)
        schedule = Schedule(experiment, plan, done, median_interval)
        session = _Session(folder, experiment, schedule, owner, parse, jobs, warn)
        with _signals(session.begin_no_more) as received:
            try:
                return session.run(len(plan.runs), done, database, show, received)
            finally:
                database.close()
                remains.end_remains(workspace)


def _short_tempdir() -> str:
    """A folder for sockets, whose paths have at most 108 bytes."""
    base = tempfile.gettempdir()
    return base if len(base) < 60 else "/tmp"


def _end_leftovers(owner: Owner, experiment: Experiment) -> None:
    """End what a session left that was killed: on this machine, and in the instances of its targets."""
    if owner.host == socket.gethostname():
        remains.end_remains(owner.workspace)
    for target in experiment.targets:
        with contextlib.suppress(TargetError, PlaceError, ImportError):
            if target.type == "instance":
                instance.end_leftovers(target.uri, owner.token)
            elif target.type == "kubernetes":
                from . import kubernetes

                kubernetes.end_leftovers(experiment, target, owner.token)


def _repaired(folder: Folder, done: list[Result]) -> Database:
    """The database with a row for each run that has ended. One that is damaged is made anew."""
    try:
        database = open_results(folder.database)
        add_results(database, done)
    except DatabaseError:
        for path in folder.path.glob("results.sqlite*"):
            path.unlink()
        try:
            database = open_results(folder.database)
            add_results(database, done)
        except DatabaseError as exc:
            raise FolderError(f"{folder.database}: {exc}") from None
    return database


class _Session:
    """The state that the threads share. `condition` guards the schedule, the pools and the lists."""

    def __init__(
        self,
        folder: Folder,
        experiment: Experiment,
        schedule: Schedule,
        owner: Owner,
        parse: Parse,
        jobs: int,
        warn: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self.experiment = experiment
        self.schedule = schedule
        self.owner = owner
        self.jobs = jobs
        self.condition = threading.Condition()
        self.searcher = Searcher()
        self.problems: list[str] = []
        self.stopped_now = False
        # By target, what `sessions/N.json` keeps of it.
        self.targets: dict[str, dict[str, Any]] = {}
        self._new: list[Result] = []
        self._number = 0
        self._environments = _Environments(warn)
        # Made for all cells before any run begins, so that a wrong option is reported at once.
        self._jobspecs = {cell.id: self._jobspec(cell, parse) for cell in experiment.cells}
        self._drivers = [_Driver(self, target) for target in experiment.targets]

    def _jobspec(self, cell: Cell, parse: Parse) -> Jobspec:
        target = next(one for one in self.experiment.targets if one.name == cell.target)
        try:
            return jobs.jobspec(cell, self._environments.of(target.type), parse, self._environments.caller)
        except ValueError as exc:
            raise ValueError(f"job {cell.job.name} (line {cell.job.line}), cell {cell.id}: {exc}") from None

    def jobspec_of(self, cell: Cell) -> Jobspec:
        return self._jobspecs[cell.id]

    def environment(self, kind: str) -> dict[str, str]:
        return self._environments.of(kind)

    def next_number(self) -> int:
        with self.condition:
            self._number += 1
            return self._number

    # -- the main thread

    def run(
        self,
        planned: int,
        done: list[Result],
        database: Database,
        show: Callable[[Progress], None],
        received: list[int],
    ) -> Summary:
        """Run all targets to their end. `received` has the signals so far, and grows."""
        began = time.time()
        self._count = len(done)
        self._failed = sum(result.state != "completed" for result in done)
        handled = 0
        for driver in self._drivers:
            driver.start()
        while any(driver.is_alive() for driver in self._drivers):
            # A short experiment ends without waiting for a whole turn.
            next((driver for driver in self._drivers if driver.is_alive()), self._drivers[0]).join(_TICK)
            if len(received) > handled:
                self._stop(now=handled > 0 or received[handled] != signal.SIGINT)
                handled += 1
            self._write(database)
            show(self.progress(planned))
        self._write(database, last=True)
        self.searcher.close()
        progress = self.progress(planned)
        problems = [*self.problems, *self._left_out()]
        session = {"started": began, "ended": time.time(), "targets": self.targets, "problems": problems}
        with contextlib.suppress(FolderError):
            self.folder.add_session(session)
        show(progress)
        return Summary(progress=progress, problems=tuple(problems), interrupted=received[0] if received else 0)

    def progress(self, planned: int) -> Progress:
        with self.condition:
            schedule = self.schedule
            seconds = schedule.seconds_left()
            workers = sum(driver.workers for driver in self._drivers) or 1
            return Progress(
                planned=planned - schedule.needless,
                done=self._count,
                failed=self._failed,
                running=schedule.running(),
                left=schedule.left(),
                seconds_left=None if seconds is None else seconds / workers,
            )

    def _left_out(self) -> Iterator[str]:
        if self.schedule.stopped:
            yield self.schedule.stopped
        for why, count in self.schedule.refused.items():
            if count:
                yield f"{why} ({count} {'run was' if count == 1 else 'runs were'} not started)"

    def begin_no_more(self) -> None:
        """Called by a signal handler, so without the lock: from now on, no run begins."""
        self.schedule.stopped = self.schedule.stopped or "interrupted"

    def _stop(self, now: bool) -> None:
        with self.condition:
            self.schedule.stopped = self.schedule.stopped or "interrupted"
            self.stopped_now = self.stopped_now or now
            self.condition.notify_all()
        if now:
            for driver in self._drivers:
                driver.stop()

    def _write(self, database: Database, last: bool = False) -> None:
        with self.condition:
            new, self._new = self._new, []
        if not new:
            return
        try:
            add_results(database, new)
        except DatabaseError as exc:
            # The files result.json are complete, and the next session repairs the database from them.
            if last:
                self.problems.append(f"{self.folder.database}: {exc}; `headrace experiment resume` repairs it")
            with self.condition:
                self._new = new + self._new

    # -- the threads of targets

    def ended(self, run: Run, result: Result) -> None:
        self.folder.commit(run, result)
        with self.condition:
            self.schedule.add(run, result)
            self._new.append(result)
            self._count += 1
            self._failed += result.state != "completed"
            self.condition.notify_all()

    def refuse(self, cells: list[str], why: str) -> None:
        with self.condition:
            self.schedule.refuse(cells, why)
            self.condition.notify_all()

    def fail(self, exc: FolderError) -> None:
        """The folder cannot be written: no run can be kept."""
        with self.condition:
            self.schedule.stopped = str(exc)
            self.condition.notify_all()


class _Environments:
    """The environments of runs, by the type of their target; each is made once."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.caller = Caller(warn)
        self._warn = warn
        self._made: dict[str, dict[str, str]] = {}

    def of(self, kind: str) -> dict[str, str]:
        if kind not in self._made:
            if kind == "local":
                self._made[kind] = mini_local.job_environment(self._warn)
            elif kind == "kubernetes":
                # Pods have an environment of their own.
                self._made[kind] = {}
            else:
                self._made[kind] = self.caller.environment(())[0]
        return self._made[kind]


def _shape(cell: Cell, target: values.Target) -> Shape:
    """What cells have in common that can share a place; on Kubernetes also the fields of their MiniCluster."""
    if target.type != "kubernetes":
        return cell.shape
    return (*cell.shape, json.dumps([cell.job.minicluster, bool(cell.job.manifest)], sort_keys=True))


@contextlib.contextmanager
def _signals(at_once: Callable[[], None]) -> Iterator[list[int]]:
    """The signals received so far, as a list that grows. `at_once` is called by the handler of each."""
    received: list[int] = []

    def handle(number: int, _frame: object) -> None:
        received.append(number)
        at_once()

    previous = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _Driver(threading.Thread):
    """The thread of one target: makes the target, starts a thread for each run at a time, and closes everything."""

    def __init__(self, session: _Session, target: values.Target) -> None:
        super().__init__(name=f"target {target.name}")
        self.session = session
        self.workers = 0
        self._values = target
        self._cells = [cell for cell in session.experiment.cells if cell.target == target.name]
        self._shapes = {cell.id: _shape(cell, target) for cell in self._cells}
        self._target: Target | None = None
        # Held while a run is chosen and waits for its place, so that runs begin in the order of the plan.
        self._turn = threading.Lock()

    def stop(self) -> None:
        """End all runs now."""
        target = self._target
        if target:
            target.stop()

    def run(self) -> None:
        with self.session.condition:
            if self.session.schedule.is_finished(self._values.name):
                return
        try:
            with self._up():
                self._target = target = self._make()
                self.session.targets[self._values.name]["facts"] = target.facts
                self.workers = self.session.jobs or target.jobs
                self._pool = Pool(target.nodes, target.is_one_for_each_shape, self.session.condition)
                self._refuse_larger(target.nodes)
                threads = [threading.Thread(target=self._work, name=f"{self.name}/{n}") for n in range(self.workers)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                with self.session.condition:
                    places = self._pool.take_all()
                for place in places:
                    place.close()
                target.close()
        except TargetError as exc:
            self._fail(exc)
        except FolderError as exc:
            self.session.fail(exc)

    def _fail(self, exc: TargetError) -> None:
        self.session.refuse([cell.id for cell in self._cells], f"target {self._values.name}: {exc}")

    def _refuse_larger(self, nodes: int) -> None:
        """Leave out cells that the target has not enough nodes for."""
        for size in sorted({cell.size for cell in self._cells if cell.size > nodes}):
            cells = [cell.id for cell in self._cells if cell.size == size]
            self.session.refuse(cells, f"target {self._values.name}: size {size} is more than its {nodes} nodes")

    def _make(self) -> Target:
        """Raises TargetError."""
        session, target = self.session, self._values
        environment, experiment = session.environment(target.type), session.experiment
        if target.type == "local":
            largest = max(cell.size for cell in self._cells)
            return LocalTarget(experiment, largest, session.owner.workspace, environment, session.jobspec_of)
        if target.type == "instance":
            return InstanceTarget(experiment, target.uri, session.owner.token, environment, session.jobspec_of)
        try:
            from .kubernetes import KubernetesTarget
        except ImportError as exc:
            how = "pip install '.[kube]' in a copy of the repository"
            raise TargetError(f"needs the extra kube ({exc.name} is missing): {how}") from None
        return KubernetesTarget(experiment, target, session.owner.token, session.jobspec_of)

    # -- commands around all runs

    @contextlib.contextmanager
    def _up(self) -> Iterator[None]:
        """Run the target's command `up` before the block, and `down` after it, whatever happened."""
        times = self.session.targets.setdefault(self._values.name, {})
        try:
            if self._values.up:
                self._command("up", self._values.up, times)
            yield
        finally:
            if self._values.down:
                self._command("down", self._values.down, times)

    def _command(self, name: str, text: str, times: dict[str, Any]) -> None:
        """Raises TargetError if the command fails."""
        log = self.session.folder.path / "sessions" / f"{self.session.owner.token}-{self._values.name}-{name}.log"
        began = time.time()
        try:
            with open(log, "wb") as file:
                # A session of its own: Ctrl-C does not interrupt it, because it would leave half a cluster.
                done = subprocess.run(
                    ["/bin/sh", "-c", text],
                    cwd=self.session.experiment.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                    check=False,
                )
        except OSError as exc:
            raise TargetError(f"`{name}` cannot be run: {text_of(exc)}") from None
        times[name] = [began, time.time()]
        if done.returncode:
            raise TargetError(f"`{name}` ended with status {done.returncode}; its output is in {log}")

    # -- the threads of runs

    def _work(self) -> None:
        while True:
            with self._turn:
                chosen = self._choose()
            if chosen is None:
                return
            run, position, lease, evicted = chosen
            for place in evicted:
                place.close()
            try:
                self._carry_out(run, position, lease)
            except (FolderError, OSError) as exc:
                self._drop(run, lease)
                where = self.session.folder.run_folder(run)
                self.session.fail(exc if isinstance(exc, FolderError) else FolderError(f"{where}: {exc.strerror}"))

    def _choose(self) -> tuple[Run, int, Lease, list[Any]] | None:
        """The next run with its place; waits for it. None if no run is left."""
        session, name = self.session, self._values.name
        with session.condition:
            while not (taken := session.schedule.take(name)):
                if session.schedule.is_finished(name):
                    session.condition.notify_all()
                    return None
                session.condition.wait()
            cell = session.schedule.cells[taken[0].cell]
            reserved = self._pool.reserve(self._shapes[cell.id], cell.size, lambda: bool(session.schedule.stopped))
            if reserved is None:
                session.schedule.give_back(taken[0])
                return None
            return (*taken, *reserved)

    def _carry_out(self, run: Run, position: int, lease: Lease) -> None:
        """Carry out a run, again if the machine fails. Raises FolderError, OSError."""
        session = self.session
        cell = session.schedule.cells[run.cell]
        attempt = 1
        failure = ""
        while True:
            try:
                if lease.place is None:
                    lease.place = self._open(cell, lease.shape)
                if attempt > cell.job.retry + 1:
                    # The target works, and the machine failed at every attempt.
                    result = self._result(cell, run, position, attempt - 1, Ended(state="lost", reason=failure), {})
                    session.folder.begin(run)
                else:
                    result = self._once(cell, run, position, attempt, lease)
                break
            except Lost as exc:
                if lease.place:
                    lease.place.close()
                if session.stopped_now:
                    self._drop(run, lease)
                    return
                if lease.place is None and attempt > cell.job.retry:
                    self._refuse(run, lease, str(exc))
                    return
                lease.place = None
                attempt, failure = attempt + 1, str(exc)
            except PlaceError as exc:
                self._refuse(run, lease, str(exc))
                return
            except TargetError as exc:
                self._drop(run, lease)
                self._fail(exc)
                return
        if session.stopped_now and result.state == "cancelled":
            self._drop(run, lease)
            return
        session.ended(run, result)
        with session.condition:
            self._pool.free(lease)
            # A MiniCluster is removed with its last run, because its nodes may cost money.
            needed = frozenset(self._shapes[id] for id in session.schedule.unfinished(self._values.name))
            idle = self._pool.take_idle(needed)
        for place in idle:
            place.close()

    def _open(self, cell: Cell, shape: Shape) -> Any:
        assert self._target
        cells = tuple(one for one in self._cells if self._shapes[one.id] == shape)
        return self._target.open(Opening(cells=cells, size=cell.size, number=self.session.next_number()))

    def _refuse(self, run: Run, lease: Lease, why: str) -> None:
        """Cells of this shape cannot run here."""
        self._drop(run, lease)
        cells = [cell.id for cell in self._cells if self._shapes[cell.id] == lease.shape]
        shape = f"size {lease.size}" + (f", machine {lease.shape[2]}" if lease.shape[2] else "")
        self.session.refuse(cells, f"target {self._values.name}, {shape}: {why}")

    def _drop(self, run: Run, lease: Lease) -> None:
        """The run does not count, and its place is not used again."""
        self.session.folder.abandon(run)
        place, lease.place = lease.place, None
        if place:
            place.close()
        with self.session.condition:
            self.session.schedule.give_back(run)
            self._pool.remove(lease)

    def _once(self, cell: Cell, run: Run, position: int, attempt: int, lease: Lease) -> Result:
        """One attempt. Raises Lost, FolderError, OSError."""
        assert lease.place
        record, work = self.session.folder.begin(run)
        for name in (STDOUT, STDERR):
            (record / name).touch()
        ended = lease.place.run(cell, record, work)
        return self._result(cell, run, position, attempt, ended, self._judge(cell, ended, record))

    def _judge(self, cell: Cell, ended: Ended, record: Path) -> dict[str, float]:
        """The run's metrics; sets the state of a job that has ended but is not good."""
        searcher = self.session.searcher
        metrics, missing = measure.measure(cell.job.metrics, record, searcher)
        if ended.state == "completed":
            wrong = measure.check(cell.job.check, ended.exit or 0, record, searcher)
            problems = [wrong] if wrong else missing
            if problems:
                ended.state, ended.reason = "failed", "; ".join(problems)
        return metrics

    def _result(
        self, cell: Cell, run: Run, position: int, attempt: int, ended: Ended, metrics: dict[str, float]
    ) -> Result:
        now = time.time()
        began = ended.phases.get("created", now)
        end = ended.phases.get("ended", now)
        node_seconds = cell.size * max(0.0, end - began)
        return Result(
            cell=cell.id,
            number=run.number,
            warmup=run.warmup,
            job=cell.job.name,
            target=cell.target,
            size=cell.size,
            machine=cell.machine,
            parameters=cell.parameters,
            state=ended.state,
            reason=ended.reason,
            exit=ended.exit,
            attempt=attempt,
            position=position,
            started=began,
            ended=end,
            phases=ended.phases,
            metrics=metrics,
            nodes=ended.nodes,
            node_seconds=node_seconds,
            cost=self.session.schedule.cost(cell, node_seconds),
        )
