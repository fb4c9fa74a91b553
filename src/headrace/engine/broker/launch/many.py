"""Start of a test instance: all its brokers are forked from one process, or run as separate programs.

The cost of a fork depends on the memory that is mapped, and on the pages that each process writes later. So the zygote,
which forks the agents, is forked first, while little is loaded. It imports the modules of agents while this process
imports those of brokers.

Brokers run as programs if a fork of this process would not do what was requested. With the hosts of a `[bootstrap]`
table, each broker boots like a broker on its own node: it reads the configuration itself, and can be restarted with
another configuration. Brokers are also programs if a wrapper or the user's own `flux-broker` must run.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING

from headrace.engine.agent import reaper
from headrace.engine.agent.zygote import Zygote, fork_zygote
from headrace.engine.broker import signals
from headrace.engine.broker.boot import boot
from headrace.engine.broker.boot.boot import method_in_test_instance
from headrace.engine.broker.launch.options import LaunchError, LaunchOptions, check, create_planned_rundir, make_rundir
from headrace.engine.broker.launch.preload import preload
from headrace.engine.broker.launch.supervisor import Supervisor
from headrace.engine.broker.state import machine
from headrace.engine.process import linux
from headrace.engine.process.spawn import raise_file_limit
from headrace.formats.spec.os_error import text_of
from headrace.formats.spec.topology import Topology

if TYPE_CHECKING:
    from headrace.engine.broker.launch.start_pmi import StartPmi


def start_many(options: LaunchOptions) -> int:
    """Run `--test-size=N`, N brokers on this machine; returns the instance's exit code."""
    signals.block()
    check(options)
    size = options.size
    hosts = options.hosts or [boot.local_hostname()] * size
    if len(hosts) != size:
        raise LaunchError(f"--test-hosts names {len(hosts)} hosts, the instance has {size} brokers")
    try:
        programs = _runs_programs(options)
        topology = None if programs else Topology(size, options.attrs.get("tbon.topo", "kary:32"))
        quorum = machine.quorum_size(options.attrs.get("broker.quorum", ""), size)
    except (boot.BootError, ValueError) as exc:
        raise LaunchError(str(exc)) from None
    linux.name_process("flux-start")
    raise_file_limit()
    rundir = make_rundir(options, later=True)
    cleanup = options.attrs.get("rundir-cleanup", "1") == "1"
    try:
        if topology is None:
            create_planned_rundir(options)
            return _run_programs(options, rundir, quorum, cleanup)
        return _run_forks(options, rundir, quorum, topology, hosts)
    except OSError as exc:
        raise LaunchError(text_of(exc)) from None
    finally:
        if cleanup:
            # A leader that was killed could not remove it.
            shutil.rmtree(rundir, ignore_errors=True)


def _ranks(options: LaunchOptions) -> range:
    """The ranks to start immediately."""
    return range(1 if options.start_mode == "leader" else options.size)


# -- brokers that are forks of this process


def _run_forks(options: LaunchOptions, rundir: str, quorum: int, topology: Topology, hosts: list[str]) -> int:
    ranks = _ranks(options)
    cleanup = options.attrs.get("rundir-cleanup", "1") == "1"
    gc.freeze()
    agents = fork_zygote(len(ranks), rundir if cleanup else "")
    brokers: _Forks | None = None
    try:
        preload(options.size > 1)
        # Not earlier: if this process is killed, the zygote removes the folder.
        create_planned_rundir(options)
        brokers = _Forks(options, rundir, quorum, topology, hosts, agents)
        brokers.supervisor.listen()
        signals.catch()
        for rank in ranks:
            brokers.supervisor.start(rank)
        signals.restore_defaults()
    finally:
        agents.close()
    return brokers.supervisor.run()


class _Forks:
    """Forks the broker of each rank.

    The first broker of a rank gets an agent from the zygote, any later one forks its own agent.
    """

    def __init__(
        self, options: LaunchOptions, rundir: str, quorum: int, topology: Topology, hosts: list[str], agents: Zygote
    ) -> None:
        self._options = options
        self._rundir = rundir
        self._agents = agents
        self._own = os.getpid()
        self._cleanup = options.attrs.get("rundir-cleanup", "1") == "1"
        tcp = _address(options) if options.clique != "single" or boot.prefers_tcp(options.attrs) else ""
        method = method_in_test_instance(options.attrs, os.environ) or "simple"
        self._infos = boot.on_one_machine(options.size, rundir, topology, hosts, tcp)
        for info in self._infos:
            info.attrs = {"broker.boot-method": method, **_mapping(options.clique, options.size)}
        self._began: set[int] = set()
        self.supervisor = Supervisor(options, rundir, quorum, self._fork, agents)

    def _fork(self, rank: int) -> int:
        """Start the broker of `rank`; returns its pid. Raises OSError."""
        restarted = rank in self._began or rank not in _ranks(self._options)
        if restarted:
            # Signals to the new broker stay pending until it has handlers.
            signals.block()
        pid = os.fork()
        if pid == 0:
            self._run_broker(rank, restarted)
        if restarted:
            signals.unblock()
        else:
            self._agents.taken(rank)
        self._began.add(rank)
        return pid

    def _run_broker(self, rank: int, restarted: bool) -> None:
        """Run the broker of `rank` in the fork, and exit."""
        from headrace.engine.broker.launch.launch import run_broker

        options, own = self._options, self._own
        code = 1
        try:
            self.supervisor.leave()
            if rank:
                options.attrs["rundir-cleanup"] = "0"
            else:
                _die_with_starter(own)
            if restarted:
                reaper.leave_agents_to_others()
            agent = None if restarted else (0, self._agents.take(rank))
            code = run_broker(self._infos[rank], options, self._rundir, own if self._cleanup else 0, agent)
        except BaseException as exc:
            print(f"flux-broker: {text_of(exc)}", file=sys.stderr)
        finally:
            if self._cleanup and rank == 0 and os.getppid() != own:
                # `flux start` was killed, and perhaps the zygote too: then the leader removes the run directory.
                shutil.rmtree(self._rundir, ignore_errors=True)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code & 0xFF)


def _die_with_starter(starter: int) -> None:
    """In the leader: request a signal when `starter` is killed. Followers end with the leader."""
    linux.die_with_parent(signal.SIGTERM)
    if os.getppid() != starter:
        raise LaunchError("flux start was killed")


def _mapping(clique: str, size: int) -> dict[str, str]:
    """The attribute `broker.mapping` (RFC 34) of brokers that share nodes as in `--test-pmi-clique`."""
    known = {"none": "", "single": f"[[0,1,{size},1]]", "per-broker": f"[[0,{size},1,1]]"}
    return {"broker.mapping": known.get(clique, clique)}


def _address(options: LaunchOptions) -> str:
    """The address of this host for brokers on other hosts. Raises LaunchError."""
    from headrace.engine.broker.boot.address import AddressError, address_of, hint_of

    if options.clique == "single":
        return "127.0.0.1"
    try:
        return address_of(boot.local_hostname(), hint_of(options.attrs, os.environ))
    except AddressError as exc:
        raise LaunchError(str(exc)) from None


# -- brokers that are programs


def _runs_programs(options: LaunchOptions) -> bool:
    """True if each broker must be started as a separate program.

    Raises BootError for a boot method that is not possible.
    """
    method = method_in_test_instance(options.attrs, os.environ)
    if method == "single" and options.size > 1:
        raise boot.BootError(f"boot method single makes an instance of one broker, not of {options.size}")
    # -vv shows the PMI exchange of the brokers, and forked brokers have none.
    shows_pmi = options.start_verbose > 1
    return _has_hosts(options) or options.runs_other_program or shows_pmi


def _has_hosts(options: LaunchOptions) -> bool:
    """True if brokers boot from the table `[bootstrap]`."""
    method = method_in_test_instance(options.attrs, os.environ)
    table = options.config.get("bootstrap")
    return method == "config" or (not method and isinstance(table, dict) and bool(table.get("hosts")))


def _run_programs(options: LaunchOptions, rundir: str, quorum: int, cleanup: bool) -> int:
    own = os.getpid()
    exchange: StartPmi | None = None

    def start(rank: int) -> int:
        attrs = {"rundir": rundir, "rundir-cleanup": str(int(cleanup))}
        words = [f"--setattr={name}={value}" for name, value in attrs.items()]
        fd, variables = exchange.begin(rank) if exchange else (-1, {})
        pid = os.fork()
        if pid == 0:
            command = options.command if rank == 0 else []
            if options.hosts:
                variables["FLUX_FAKE_HOSTNAME"] = options.hosts[rank]
            _become_program([*options.broker_argv, *words, *command], variables, fd, rank, own)
        if fd != -1:
            os.close(fd)
        return pid

    supervisor = Supervisor(options, rundir, quorum, start, None)
    if not _has_hosts(options):
        from headrace.engine.broker.launch.start_pmi import StartPmi

        mapping = _mapping(options.clique, options.size)["broker.mapping"]
        exchange = StartPmi(options.size, mapping, supervisor.watch, supervisor.abort, options.start_verbose > 1)
        supervisor.on_end = exchange.ended
    supervisor.listen()
    for rank in _ranks(options):
        supervisor.start(rank)
    return supervisor.run()


def _become_program(argv: list[str], variables: dict[str, str], pmi_fd: int, rank: int, starter: int) -> None:
    """In a fork: execute the broker of `rank`, or exit.

    It inherits only the descriptor `pmi_fd`, unless that is -1.
    """
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signals.unblock()
        if rank == 0:
            _die_with_starter(starter)
        if pmi_fd != -1:
            os.set_inheritable(pmi_fd, True)
        # The variables of our own launcher are meant for this process, not for the broker.
        env = {name: value for name, value in os.environ.items() if not name.startswith("PMI_")}
        status = 127
        os.execvpe(argv[0], argv, {**env, **variables})
    except OSError as exc:
        print(f"flux-start: {argv[0]}: {exc.strerror}", file=sys.stderr)
    except LaunchError as exc:
        print(f"flux-start: {exc}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)
