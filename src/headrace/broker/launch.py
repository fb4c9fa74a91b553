"""Starts brokers: one in this process, or a whole test instance of several on this machine.

Forks come first: the exec agent of a broker is forked before any ZeroMQ context, thread or event loop exists.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from ..agent import keeper, linux
from ..agent.spawn import raise_file_limit
from ..client.handle import Handle
from ..compat.environment import with_flux
from ..spec import duration
from ..spec.os_error import text_of
from . import boot, module_process, signals, state
from .attrs import AttrError, AttrTable
from .boot import BootError, BootInfo
from .boot_pmi import from_launcher, launcher
from .config import ConfigError
from .modhost import FOLLOWER_MODULES, exec_modules, names_for
from .module import RpcError
from .topology import Topology

# A socket path has 108 bytes; what we append to the run directory ("/local-12345", "/tbon-12345") takes a dozen.
_RUNDIR_LIMIT = 88
# Seconds that followers may outlive their leader before they are told to go, and then until they are killed.
_GRACE, _STUCK = 1.0, 4
# How often a leader that does not answer is asked.
_TRIES = 10


class LaunchError(Exception):
    """The instance cannot be started; the text says why."""


class LaunchOptions:
    """What `flux start` and `flux broker` were asked for."""

    def __init__(
        self,
        *,
        size: int = 0,
        attrs: dict[str, str] | None = None,
        config: dict[str, Any] | None = None,
        config_path: str = "",
        command: list[str] | None = None,
        hosts: list[str] | None = None,
        rundir: str = "",
        verbose: int = 0,
    ) -> None:
        self.size = size
        self.verbose = verbose
        # A new private run directory that has only a name yet.
        self.unmade = ""
        self.attrs = {} if attrs is None else attrs
        self.config = config or {}
        self.config_path = config_path
        self.command = command or []
        self.hosts = hosts or []
        self.rundir = rundir


def make_rundir(options: LaunchOptions, later: bool = False) -> str:
    """The run directory, short enough for socket paths: the one that is asked for, or a new private one; before it the
    `statedir`, if there shall be one. Raises LaunchError, and leaves no folder then. With `later` a private one is left
    for `_make_unmade` to make.
    """
    statedir, new = options.attrs.get("statedir", ""), False
    if statedir:
        options.attrs["statedir"], new = _folder("statedir", statedir)
    try:
        path = _rundir(options)
        if not later:
            _make_unmade(options)
        return path
    except LaunchError:
        if new:
            os.rmdir(options.attrs["statedir"])
        raise


def _rundir(options: LaunchOptions) -> str:
    given = options.attrs.get("rundir") or options.rundir
    if given:
        if len(os.fsencode(given)) > _RUNDIR_LIMIT:
            raise LaunchError(f"rundir {given}: longer than {_RUNDIR_LIMIT} bytes, socket paths would not fit")
        path, new = _folder("rundir", given)
        if os.stat(path).st_mode & stat.S_ISVTX:
            # A place that many share, like /tmp.
            return _new_name(options, path)
        # What was there before us stays.
        options.attrs.setdefault("rundir-cleanup", "1" if new else "0")
        return path
    base = os.environ.get("TMPDIR") or "/tmp"
    if len(os.fsencode(base)) > _RUNDIR_LIMIT - 12:
        base = "/tmp"
    return _new_name(options, base)


def _new_name(options: LaunchOptions, base: str) -> str:
    """A name that nobody guesses, and none has yet. (Package tempfile takes longer to import than this to run.)"""
    while not options.unmade or os.path.lexists(options.unmade):
        options.unmade = os.path.join(os.path.abspath(base), f"flux-{os.urandom(4).hex()}")
    return options.unmade


def _make_unmade(options: LaunchOptions) -> None:
    """Make the folder of ours alone that has a name. Raises LaunchError."""
    path, options.unmade = options.unmade, ""
    if path:
        try:
            os.mkdir(path, 0o700)
        except OSError as exc:
            base = os.path.dirname(path)
            raise LaunchError(
                f"cannot make a run directory in {base}: {exc.strerror}; TMPDIR names another place"
            ) from None


def _folder(attribute: str, path: str) -> tuple[str, bool]:
    """The absolute `path` of a folder that we can write to, and whether it is new. Its parent must exist: a name that
    was mistyped would otherwise be made. Raises LaunchError."""
    path, new = os.path.abspath(path), True
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        new = False
    except OSError as exc:
        parent = os.path.dirname(path)
        if isinstance(exc, FileNotFoundError):
            # /proc has no place for new folders, and says it this way.
            why = f"no folder can be made in {parent}" if os.path.isdir(parent) else f"there is no folder {parent}"
            raise LaunchError(f"{attribute} {path}: {why}") from None
        raise LaunchError(f"{attribute} {path}: {exc.strerror}") from None
    if not os.path.isdir(path):
        raise LaunchError(f"{attribute} {path}: Not a directory")
    if not os.access(path, os.W_OK | os.X_OK):
        raise LaunchError(f"{attribute} {path}: not writable")
    return path, new


def _check_state(statedir: str) -> None:
    """Raises LaunchError, and leaves no new folder, if the lead's `statedir` has too little room."""
    from . import state_disk

    short = state_disk.shortage(statedir)
    if short:
        with contextlib.suppress(OSError):
            # Not if there is something in it.
            os.rmdir(statedir)
        raise LaunchError(f"statedir {statedir}: {short}")


def run_broker(info: BootInfo, options: LaunchOptions, rundir: str, starter: int = 0) -> int:
    """Be the broker of `info`; returns its exit code. `starter` is a process that removes `rundir` if it can.

    Raises LaunchError.
    """
    from ..agent.birth import spawn_agent, spawn_another

    if info.rank == 0:
        if options.attrs.get("statedir"):
            _check_state(options.attrs["statedir"])
        if options.config:
            from .config_keys import doubts

            for line in doubts(options.config, options.config_path):
                print(f"flux-broker: warning: {line}", file=sys.stderr)
    if options.verbose:
        for line in (
            f"boot: rank={info.rank} size={info.size}",
            f"parent: {info.parent_uri or 'none'}",
            f"child: {info.bind or 'none'}",
        ):
            print(f"flux-broker: {line}", file=sys.stderr)
    if options.verbose > 1:
        print("flux-broker: entering event loop", file=sys.stderr)
    # The brokers of a test instance share a run directory, which is removed when the last has ended.
    own = not options.size and options.attrs.get("rundir-cleanup", "1") == "1"
    # A broker of a test instance is one of many forks; one alone keeps the command line that somebody gave it.
    linux.name_process(f"flux-broker-{info.rank}", f"flux-broker: rank {info.rank}" if options.size else "")
    raise_file_limit()
    its = (rundir if own or starter else "", starter, info.rank)
    agent = spawn_agent(*its)
    # Not before: the agent removes it when we are killed.
    _make_unmade(options)
    attrs = AttrTable({**options.attrs})
    attrs.set("rundir", rundir)
    if info.rank:
        # A choice for the one that talks to many.
        attrs.set("tbon.zmq_io_threads", "1")
    forked = _fork_modules(info.rank, attrs, options.config, agent[1])
    from .broker import Broker

    # Only the leader runs a program; scripts before and after it run everywhere.
    scripts = attrs.get("broker.rc1_path") or attrs.get("broker.rc3_path") or os.environ.get("FLUX_RC_EXTRA")
    env = with_flux(os.environ) if info.rank == 0 or scripts else {}
    command = options.command if info.rank == 0 else None
    another = partial(spawn_another, *its)
    broker = Broker(info, attrs, options.config, options.config_path, command, agent, env, forked, another)
    return broker.run()


def _fork_modules(
    rank: int, attrs: AttrTable, config: dict[str, Any], agent: socket.socket
) -> dict[str, module_process.Forked]:
    """The processes of this broker's modules that have one. They must not hold the agent's socket: it ends with us."""
    try:
        names = [name for name in names_for(rank, attrs, config) if name in exec_modules(config)]
    except RpcError:
        # The broker will say so, in its log.
        return {}
    forked: dict[str, module_process.Forked] = {}
    if names:
        # What we have not written yet would be written by them too.
        sys.stdout.flush()
        sys.stderr.flush()
    for name in names:
        forked[name] = module_process.fork(name, [agent, *(other.sock for other in forked.values())])
    return forked


def start_here(options: LaunchOptions) -> int:
    """One broker in this process, booted by its launcher or alone; returns its exit code. Raises LaunchError."""
    signals.hold()
    _check(options)
    rundir = make_rundir(options, later=True)
    try:
        # The other brokers may be long in coming.
        with signals.interruptible():
            info = _boot(options, rundir)
        return run_broker(info, options, rundir)
    except BootError as exc:
        raise LaunchError(str(exc)) from None
    except signals.Interrupted as exc:
        return 128 + exc.number
    finally:
        if options.attrs.get("rundir-cleanup", "1") == "1":
            shutil.rmtree(rundir, ignore_errors=True)


def _boot(options: LaunchOptions, rundir: str) -> BootInfo:
    launched = launcher(os.environ)
    if launched is not None:
        return from_launcher(*launched, os.environ, rundir, options.attrs)
    if "bootstrap" in options.config:
        from .boot_config import from_config

        return from_config(options.config, options.attrs.get("tbon.topo", ""))
    return boot.alone(options.hosts[0] if options.hosts else "", options.attrs.get("tbon.topo", "kary:32"))


def _check(options: LaunchOptions) -> None:
    try:
        if options.config:
            # Tables that most instances need not read, nor keep in each of their brokers.
            from .config_keys import attributes, check

            check(options.config, options.config_path)
            options.attrs = {**attributes(options.config), **options.attrs}
        AttrTable(options.attrs)
    except (AttrError, ConfigError) as exc:
        raise LaunchError(str(exc)) from None


def _preload(modules: Iterable[str], links: bool) -> None:
    """Import what all brokers need once, so that the processes forked from here share its memory and its time.

    What the leader alone needs it loads itself, while we fork the others.
    """
    import asyncio

    from ..agent import birth as _birth  # noqa: F401
    from ..modules.discovery import discover_before_fork
    from . import broker as _broker  # noqa: F401

    if links:
        from . import overlay_sockets as _overlay_sockets  # noqa: F401
    for name in modules:
        importlib.import_module("headrace.modules." + name.replace("-", "_"))
    # Code that ran once has its caches filled: done here, the pages they are in stay shared.
    asyncio.new_event_loop().close()
    duration.parse("1s")
    discover_before_fork()
    # Collections would otherwise write to, and so copy, every page that the children inherit. What garbage there is
    # may stay: to find it takes longer than to start the agent.
    gc.freeze()


def start_many(options: LaunchOptions) -> int:
    """`--test-size=N`: N brokers on this machine, forked from here; returns the leader's exit code."""
    signals.hold()
    _check(options)
    size = options.size
    hosts = options.hosts or [boot.local_hostname()] * size
    if len(hosts) != size:
        raise LaunchError(f"--test-hosts names {len(hosts)} hosts, the instance has {size} brokers")
    linux.name_process("flux-start")
    # First what takes long: if we are killed before there are brokers, nobody removes the run directory.
    _preload(FOLLOWER_MODULES, size > 1)
    rundir = make_rundir(options)
    try:
        infos = boot.on_one_machine(size, rundir, _topology(options, hosts), hosts, boot.prefers_tcp(options.attrs))
        keeper.become_keeper()
        quorum = state.quorum_size(options.attrs.get("broker.quorum", ""), size)
        return _wait(_fork_brokers(infos, options, rundir), quorum, rundir)
    except (BootError, ValueError) as exc:
        raise LaunchError(str(exc)) from None
    finally:
        if options.attrs.get("rundir-cleanup", "1") == "1":
            # A leader that was killed could not do it.
            shutil.rmtree(rundir, ignore_errors=True)


def _topology(options: LaunchOptions, hosts: list[str]) -> str | Topology:
    """The shape that a `[bootstrap]` table gives brokers with just these names, else that of `tbon.topo`."""
    if "bootstrap" in options.config:
        from .boot_config import topology_of

        shape = topology_of(options.config["bootstrap"], options.attrs.get("tbon.topo", ""), hosts)
        if shape is not None:
            return shape
    return options.attrs.get("tbon.topo", "kary:32")


def _fork_brokers(infos: list[BootInfo], options: LaunchOptions, rundir: str) -> dict[int, int]:
    """Start them all; returns their ranks by pid."""
    pids: dict[int, int] = {}
    own = os.getpid()
    cleanup = options.attrs.get("rundir-cleanup", "1") == "1"
    for info in infos:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                if info.rank:
                    options.attrs["rundir-cleanup"] = "0"
                else:
                    _end_with(own)
                code = run_broker(info, options, rundir, own if cleanup else 0)
            except BaseException as exc:
                print(f"flux-broker: {text_of(exc)}", file=sys.stderr)
            finally:
                if cleanup and os.getppid() != own:
                    # Who would do it was killed: the last of us leaves nothing.
                    shutil.rmtree(rundir, ignore_errors=True)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code & 0xFF)
        pids[pid] = info.rank
    return pids


def _end_with(starter: int) -> None:
    """In the leader: be told to shut down when `starter` is killed; the followers end with the leader."""
    linux.die_with_parent(signal.SIGTERM)
    if os.getppid() != starter:
        raise LaunchError("flux start was killed")


def _wait(pids: dict[int, int], quorum: int, rundir: str) -> int:
    """Until all brokers have ended; returns the leader's exit code.

    Nobody starts a follower again: one that ends before the instance runs may leave its leader waiting for ever. Then
    the instance is ended, and the exit code is that follower's.
    """
    size = len(pids)
    leader = next(pid for pid, rank in pids.items() if rank == 0)

    def forward(number: int, _frame: Any) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(leader, number)

    def left_alone(_number: int, _frame: Any) -> None:
        # They never met the leader, or cannot leave.
        number, patience = (signal.SIGKILL, 0) if asked else (signal.SIGTERM, _STUCK)
        asked.append(number)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        signal.alarm(patience)

    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    if signal.SIGINT in signal.sigpending():
        # From a terminal, perhaps before there was a leader; to ignore it now is to lose it.
        forward(signal.SIGINT, None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, left_alone)
    signals.release()
    result = failed = 0
    leader_killed = False
    while pids:
        pid, status = os.wait()
        rank = pids.pop(pid, None)
        if rank is None:
            continue
        code = os.waitstatus_to_exitcode(status)
        lost = rank and code and leader in pids and len(pids) < quorum
        too_few = lost and not (asked or failed or _has_run(leader, rundir))
        if code and (rank == 0 or code < 0 or too_few) and not asked:
            how = f"exited with rc={code}" if code > 0 else f"killed by signal {-code}"
            if size > 1:
                print(f"flux-start: {rank} (pid {pid}) {how}", file=sys.stderr)
        if too_few:
            failed = code if code > 0 else 128 - code
            text = f"{quorum} brokers are needed and {len(pids)} are left: ending the instance"
            print(f"flux-start: {text}", file=sys.stderr)
            forward(signal.SIGTERM, None)
        if rank == 0:
            leader_killed = code < 0
            result = code if code >= 0 else 128 - code
            signal.setitimer(signal.ITIMER_REAL, _GRACE)
        if code:
            # Its agent may have been killed too: what that ran is ours now.
            keeper.kill_strays(pids, f"local://{rundir}/local-{rank}")
    if leader_killed:
        keeper.kill_strays(pids)
    return failed or result


def _has_run(leader: int, rundir: str) -> bool:
    """Whether the leader (a pid) has its quorum behind it, or is gone."""
    for _ in range(_TRIES):
        if os.waitid(os.P_PID, leader, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        try:
            handle = Handle(f"local://{rundir}/local-0")
            reached = handle.rpc("state-machine.get").get(_GRACE)["state"]
            handle.close()
        except OSError:
            # It does not listen yet, or not any more.
            time.sleep(_GRACE / _TRIES)
        else:
            return not state.before(reached, "run")
    return False
