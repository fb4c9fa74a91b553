"""The runner of a pod: process 1 of the container with Flux.

It writes the files for users, runs the shell text before the brokers, starts the broker (on the lead with the initial
program), runs the text after it, and exits with the job's own status. If a follower's broker ends before the instance
has ended, it is restarted. SIGTERM ends the pod in order.

One `poll` waits for all events: signals, states of the broker, the shell text, probes.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.engine.shell import node_variables
from headrace.formats.spec.job_exception import NODE_FAILURE
from headrace.formats.spec.wait_status import exit_code

from ...api import pod_plan, shell_text
from ...api.pod_plan import PodPlan
from ...api.shell_text import Mode, plain_words
from . import brokers, channel_link, ending, enter, environment, files
from .ending import Ending
from .place import Place, PlaceError, find_place, read_plan
from .ready import ReadyPort

if TYPE_CHECKING:
    from .resources import ResourceFiles

# Exit status of a pod that received SIGTERM before its instance had ended: the status that a shell has for SIGTERM.
EXIT_TERMINATED = 128 + signal.SIGTERM
_SIGTERM_REASON = "the pod received SIGTERM"
# Seconds between the end of a follower's broker and the start of the next.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
# Seconds for an orderly end after SIGTERM; Kubernetes kills a pod after 30 by default.
_TERMINATION_TIMEOUT = 20.0
# Seconds in state run before a follower writes the files with R and hosts. Otherwise all followers of a short job would
# request them from the lead at once, while pods are still starting.
_SETTLED = 3.0
# Seconds in a state before probes report the broker as up. If an instance ends sooner, its pods never become ready.
# This saves updates of each pod's status and of the Service's endpoints while all pods start or end. Brokers that wait
# for other brokers are in state quorum.
_LASTS = {"quorum": 10.0, "run": 1.0, "cleanup": 1.0}
# Seconds between two checks whether a pod that is not in its plan has been added to the plan.
_PLACE_PERIOD = 1.0
# Seconds to wait for the final job counts from the channel's process.
_LAST_WORDS = 1.0
# Seconds after the loss of a follower in which the lead may receive SIGTERM from the same deletion of pods.
_SIGTERM_SPREAD = 5.0


def run_pod(argv: list[str] | None = None) -> int:
    """Run this pod; return the exit status of its container.

    `argv` is the command of a pod of a foreign object, whose container has the command. For a MiniCluster it is None,
    because the plan has the command.
    """
    began = time.time()
    try:
        if argv is None:
            plan = read_plan()
            place = find_place(plan, os.environ)
        else:
            plan, place = _find_foreign_place()
        return Runner(plan, place, began, argv).run()
    except PlaceError as exc:
        print(f"headrace-pod: {exc}", file=sys.stderr)
        ending.write(Ending(1, str(exc), {"start": began}, {}))
        return 1


def _find_foreign_place() -> tuple[PodPlan, Place]:
    """Return the plan and the place of a pod of a foreign object. Raises PlaceError.

    The Job may have more pods than its plan has hosts. A surplus pod must not end, because that would end the Job. It
    waits until it is deleted, or until the plan has its host: the kubelet updates the file when the Secret changes.
    """
    is_reported = False
    while True:
        plan = read_plan(pod_plan.FOREIGN_FOLDER)
        try:
            return plan, find_place(plan, os.environ, keys=pod_plan.FOREIGN_FOLDER)
        except PlaceError as exc:
            index = os.environ.get(pod_plan.INDEX_VARIABLE, "")
            if not index.isdigit() or int(index) < plan.size:
                raise
            if not is_reported:
                print(f"headrace-pod: {exc}: waiting: the Job was scaled beyond them", file=sys.stderr, flush=True)
                is_reported = True
        # The kernel drops signals for process 1 of a container if it has no handler for them.
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
        time.sleep(_PLACE_PERIOD)


class Runner:
    """One pod, from its start to its end. `run` is called once."""

    def __init__(self, plan: PodPlan, place: Place, began: float, argv: list[str] | None = None) -> None:
        self._plan = plan
        self._argv = argv
        self._place = place
        self._leads = place.rank == 0
        self._times = {"start": began}
        self._reason = self._cause = ""
        # Whether SIGTERM was received.
        self._terminating = False
        # Whether the broker received SIGTERM before its initial program had ended.
        self._cut_short = False
        # Scheduled steps with their times (time.monotonic).
        self._due: dict[Callable[[], None], float] = {}
        # Wait statuses of child processes that have ended.
        self._ended: dict[int, int] = {}
        self._broker = self._shell = 0
        self._state = ""
        # The descriptor to which the broker writes its states; -1 without a broker.
        self._states = -1
        # Whether the last broker was ended by a signal.
        self._was_killed = False
        self._ready = ReadyPort(pod_plan.READY_PORT, self._watch, self._forget)
        self._channel: channel_link.Link | None = None
        self._resources: ResourceFiles | None = None
        self._poll = select.poll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._config: dict[str, Any] = {}

    def run(self) -> int:
        self._catch_signals()
        if self._argv is None:
            # Pods of foreign objects have probes of their own, or none.
            self._open_ready_port()
        self._prepare()
        status = self._run_in_shell() if self._has_shell_text() else self._run_brokers()
        return self._finish(status)

    # -- steps

    def _open_ready_port(self) -> None:
        """Open the port for readiness probes. Raises PlaceError."""
        try:
            self._ready.open()
        except OSError as exc:
            raise PlaceError(f"cannot listen on port {pod_plan.READY_PORT} for probes: {exc.strerror}") from None

    def _prepare(self) -> None:
        """Set up the environment and the files. Raises PlaceError."""
        plan, place = self._plan, self._place
        address = environment.own_address(place.host)
        self._config = {**plan.config, "bootstrap": files.bootstrap(plan, place, address)}
        files.write_files(plan, place, self._config)
        environment.prepare(os.environ, plan, place)
        own = [*plan.node_variables, environment.FAKE_HOSTNAME]
        os.environ.update(node_variables.listed(os.environ, own))

    def _texts(self) -> tuple[str, str]:
        plan = self._plan
        return plan.before + (plan.lead_before if self._leads else plan.follower_before), plan.after

    def _has_shell_text(self) -> bool:
        return any(self._texts())

    def _run_in_shell(self) -> int:
        """Run the user's texts and, between them, the brokers in one shell; return the shell's exit status."""
        shell = environment.find_shell(os.environ)
        if not shell:
            raise PlaceError(
                "this image has no shell (bash or sh), which commands.init, pre, brokerPre, workerPre, script and post "
                "and a batch need"
            )
        # Imported here, because most pods have no such text.
        import shlex

        plan = self._plan
        before, after = self._texts()
        program = [*environment.own_command(), "enter"]
        text = shell_text.outer_text(before, shlex.join(program), after, strict=plan.strict, quiet=plan.quiet)
        ours, its = socket.socketpair()
        os.environ[enter.VARIABLE] = str(its.fileno())
        with ours:
            with its:
                self._shell = _start([shell, "-c", text], its.fileno())
            del os.environ[enter.VARIABLE]
            entered = self._read_enter(ours)
            if entered is None:
                status = self._status_of(self._shell)
                self._reason = self._reason or ending.reason_of(status, "the shell text before the brokers")
                return status
            env, cwd = entered
            os.environ.clear()
            os.environ.update(env)
            os.chdir(cwd)
            status = self._run_brokers()
            with contextlib.suppress(OSError):
                ours.sendall(str(status).encode())
            self._wait(lambda: self._shell in self._ended)
        ended = self._status_of(self._shell)
        if self._terminating:
            # SIGTERM may have interrupted the text after the brokers.
            return status
        if ended != status:
            self._reason = ending.reason_of(ended, "commands.post")
        return ended

    def _read_enter(self, sock: socket.socket) -> tuple[dict[str, str], str] | None:
        """The environment and directory of the shell text at the brokers; None if it ends earlier."""
        data = bytearray()
        sock.setblocking(False)

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                chunk = sock.recv(1 << 16)
                data.extend(chunk)
                if not chunk:
                    self._forget(sock.fileno())

        self._watch(sock.fileno(), read)
        self._wait(lambda: data.endswith(b"\n") or self._shell in self._ended)
        self._forget(sock.fileno())
        sock.setblocking(True)
        return enter.read(bytes(data)) if data.endswith(b"\n") else None

    def _run_brokers(self) -> int:
        """Run the lead's broker, or a follower's broker until the instance has ended; return the exit status."""
        attrs = brokers.attributes(self._plan, self._place, statedir=True)
        brokers.preload(self._place.size)
        self._times["brokers"] = time.time()
        if self._leads:
            return self._run_lead(attrs)
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            status, in_order = self._run_broker(attrs, [])
            if self._is_terminating():
                return EXIT_TERMINATED
            if self._plan.complete_workers or (in_order and not self._plan.restarts_lead):
                return 0
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            why = f"the broker ended with status {status}"
            if in_order:
                # If the lead has succeeded, Kubernetes ends this pod together with the Job (successPolicy).
                why = "the lead has ended; it restarts if it failed"
            elif status == brokers.EXIT_LEAD_SIGNALED:
                why = "the lead was ended by a signal; a new lead is expected"
            print(f"headrace-pod: {why}: starting the broker again", file=sys.stderr)
            self._wait(self._is_terminating, pause)
            if self._is_terminating():
                return EXIT_TERMINATED
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _run_lead(self, attrs: dict[str, str]) -> int:
        program = self._initial_program()
        self._open_channel()
        began = time.monotonic()
        status, _ = self._run_broker(attrs, program)
        if self._channel is not None:
            self._end_channel(self._channel)
        if self._cut_short:
            self._reason = _SIGTERM_REASON
            return EXIT_TERMINATED
        if self._was_killed:
            self._reason = ending.reason_of(status, "the lead's broker")
        elif "run" not in self._times:
            archive = attrs.get("content.restore", "")
            why = f" (it should restore the archive {archive}: see its log)" if archive else ""
            self._reason = ending.reason_of(status, "the lead's broker") + f" before the instance ran{why}"
        else:
            failed = self._channel.failed_job if self._channel is not None and status else {}
            self._cause, why = ending.failure(failed)
            self._reason = why or ending.reason_of(status)
            if self._cause == NODE_FAILURE and self._plan.replaces_killed:
                # When Kubernetes deletes several pods, for example of a suspended Job, it sends SIGTERM to one pod
                # after another. If the lead receives it last, its job has failed already because followers were lost.
                # The Job must not fail because of that, so wait whether SIGTERM follows.
                self._wait(self._is_terminating, _SIGTERM_SPREAD)
                if self._terminating:
                    self._cut_short, self._cause, self._reason = True, "", _SIGTERM_REASON
                    return EXIT_TERMINATED
        if self._plan.timed:
            self._print_time("fluxsubmit", self._times.get("done", 0) - self._times.get("run", 0))
            self._print_time("fluxstart", time.monotonic() - began)
        return status

    def _open_channel(self) -> None:
        self._channel = channel_link.open_link(self._plan, self._place)
        if self._channel is not None:
            self._watch(self._channel.fd, self._read_channel)

    def _read_channel(self) -> None:
        assert self._channel is not None
        if not self._channel.read():
            self._forget(self._channel.fd)
        elif self._channel.asks_to_end and self._broker:
            self._note_end_by_signal()
            self._send_to_broker(signal.SIGTERM)

    def _end_channel(self, channel: channel_link.Link) -> None:
        """Report the end of the instance to the operator.

        If the operator requested the end, wait until it deletes the pod: a pod that ends by itself would complete the
        Job.
        """
        channel.send_state("ended")
        self._wait(lambda: channel.closed or bool(channel.jobs), _LAST_WORDS)
        if channel.asks_to_end:
            self._wait(self._is_terminating)

    def _initial_program(self) -> list[str]:
        """The command line of the initial program.

        Raises PlaceError if it needs a shell and the image has none.
        """
        plan = self._plan
        if Mode(plan.mode) is Mode.INTERACTIVE:
            return []
        if self._argv is not None:
            return self._argv if Mode(plan.mode) is Mode.LAUNCHER else run_command(plan, self._argv)
        words = plain_words(plan.initial_program)
        shell = environment.find_shell(os.environ)
        if words and (words[0] == "flux" or not shell):
            return words
        if not shell:
            raise PlaceError(
                "this image has no shell (bash or sh), which the command needs: it has to be a program and its "
                f"arguments, without variables, patterns or redirection: {plan.initial_program.strip()}"
            )
        return [shell, "-c", plan.initial_program]

    def _print_time(self, what: str, seconds: float) -> None:
        print(f"FLUXTIME {what} wall time {environment.elapsed(max(seconds, 0.0))}", file=sys.stderr)

    def _finish(self, status: int) -> int:
        self._times["end"] = time.time()
        if status and self._plan.ignore_failure and self._leads and not self._cut_short:
            self._reason = f"ignored because of spec.ignoreFailure: {self._reason}"
            status = 0
        with contextlib.suppress(OSError), open(f"{self._place.mount}/flux-operator-complete.txt", "w"):
            pass
        jobs = self._channel.jobs if self._channel is not None else {}
        killed = self._cut_short or self._was_killed
        end = Ending(status, self._reason, self._times, jobs, killed=killed, cause=self._cause)
        ending.write(end)
        code = ending.container_status(end, self._plan.replaces_killed and self._leads)
        if code != status:
            text = f"the job's exit code is {status}; the container exits with {code} so that the pod is not replaced"
            print(f"headrace-pod: {text}", file=sys.stderr)
        return code

    # -- the broker

    def _run_broker(self, attrs: dict[str, str], command: list[str]) -> tuple[int, bool]:
        """Run a broker to its end; return its status, and whether it ended because its instance ended."""
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._state = ""
        self._broker = brokers.fork_broker(attrs, self._config, command, writing, self._plan.wrap)
        os.close(writing)
        if self._terminating:
            self._send_to_broker(signal.SIGTERM)
        self._states = reading
        self._watch(reading, self._read_states)
        self._wait(lambda: self._broker in self._ended)
        self._read_states()
        self._forget(reading)
        os.close(reading)
        self._states = -1
        self._drop_resources()
        self._state = ""
        self._answer_probes()
        self._was_killed = os.WIFSIGNALED(self._ended[self._broker])
        status = self._status_of(self._broker)
        self._broker = 0
        # A broker that lost its parent, or never reached it, ends with an error.
        return status, status == 0

    def _read_states(self) -> None:
        try:
            text = os.read(self._states, 4096)
        except BlockingIOError:
            return
        if not text:
            self._forget(self._states)
        for state in text.decode().split():
            self._state = state
            if self._channel is not None:
                self._channel.send_state(state)
            if state == "run":
                self._times.setdefault("run", time.time())
                self._due[self._keep_resources] = time.monotonic() + (0.0 if self._leads else _SETTLED)
            elif state == "cleanup":
                self._times.setdefault("done", time.time())
        if self._state not in brokers.UP:
            self._answer_probes()
        elif not self._ready.up:
            self._due[self._answer_probes] = time.monotonic() + _LASTS[self._state]

    def _answer_probes(self) -> None:
        self._due.pop(self._answer_probes, None)
        self._ready.answer_probes(self._state in brokers.UP)

    def _keep_resources(self) -> None:
        """Write and update the files with the instance's R and hosts.

        Errors are ignored: the files are optional.
        """
        from .resources import ResourceFiles

        with contextlib.suppress(OSError):
            self._resources = ResourceFiles(self._place)
            self._watch(self._resources.fd, self._read_resources)

    def _read_resources(self) -> None:
        if self._resources is not None and not self._resources.read():
            self._drop_resources()

    def _drop_resources(self) -> None:
        self._due.pop(self._keep_resources, None)
        if self._resources is not None:
            self._forget(self._resources.fd)
            self._resources.close()
            self._resources = None

    def _send_to_broker(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._broker, number)

    # -- signals and waiting

    def _catch_signals(self) -> None:
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda _number, _frame: None)

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                for number in os.read(reading, 64):
                    if number == signal.SIGCHLD:
                        self._reap()
                    else:
                        self._terminate()

        self._watch(reading, read)

    def _reap(self) -> None:
        """Collect ended processes: our own children, and orphans, which process 1 inherits."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid in (self._broker, self._shell):
                    self._ended[pid] = status

    def _is_terminating(self) -> bool:
        return self._terminating

    def _terminate(self) -> None:
        if self._terminating:
            return
        self._terminating = True
        self._note_end_by_signal()
        self._due[self._kill] = time.monotonic() + _TERMINATION_TIMEOUT
        if self._broker:
            self._send_to_broker(signal.SIGTERM)
        elif self._shell:
            self._signal_shell(signal.SIGTERM)

    def _note_end_by_signal(self) -> None:
        """Record that a signal will end the broker: the status of a running program is not the job's."""
        if self._states >= 0:
            self._read_states()
        self._cut_short = self._cut_short or not self._leads or "done" not in self._times

    def _signal_shell(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell, number)

    def _status_of(self, pid: int) -> int:
        self._wait(lambda: pid in self._ended)
        return exit_code(self._ended.pop(pid))

    def _watch(self, fd: int, read: Callable[[], None]) -> None:
        self._readers[fd] = read
        self._poll.register(fd, select.POLLIN)

    def _forget(self, fd: int) -> None:
        if self._readers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _wait(self, until: Callable[[], bool], limit: float | None = None) -> None:
        """Handle events until `until()` is true, or for `limit` seconds."""
        deadline = None if limit is None else time.monotonic() + limit
        while not until():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return
            for step in [step for step, at in self._due.items() if at <= now]:
                if self._due.pop(step, None) is not None:
                    step()
            times = [*self._due.values(), *([] if deadline is None else [deadline])]
            timeout = max(0, int(1000 * (min(times) - now)) + 1) if times else None
            for fd, _event in self._poll.poll(timeout):
                read = self._readers.get(fd)
                if read is not None:
                    read()

    def _kill(self) -> None:
        """Kill processes that did not end after SIGTERM."""
        if self._broker:
            self._send_to_broker(signal.SIGKILL)
        if self._shell:
            self._signal_shell(signal.SIGKILL)


def run_command(plan: PodPlan, argv: list[str]) -> list[str]:
    """The command that runs `argv` as one job on all nodes of the plan."""
    # Use our own flux: the image may have another.
    flux = os.path.join(os.path.dirname(environment.own_command()[0]), "flux")
    options = ("torch", "literal-args", "cpu-affinity=per-task", "gpu-affinity=per-task")
    return [
        *(flux, "run", f"--nodes={plan.size}", f"--tasks-per-node={plan.tasks_per_node}", "--exclusive"),
        *("--input=/dev/null", f"--job-name={plan.name}", *(f"--setopt={option}" for option in options), "--", *argv),
    ]


def _start(argv: list[str], fd: int) -> int:
    """Start a program in a process group of its own, with descriptor `fd`; returns its pid."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            os.set_inheritable(fd, True)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            os.execve(argv[0], argv, dict(os.environ))
        except OSError as exc:
            print(f"headrace-pod: {argv[0]}: {exc.strerror}", file=sys.stderr, flush=True)
        finally:
            os._exit(127)
    return pid
