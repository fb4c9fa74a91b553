"""Starts a test instance: all its brokers are forked from one process of this machine.

A fork costs by the memory that is mapped, and touched afterwards by each process. So who forks the agents is forked
first, while little is loaded, and loads what agents need while this process loads what all brokers use.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from ..agent import keeper, linux
from ..agent.spawn import raise_file_limit
from ..agent.zygote import Zygote, fork_zygote
from ..spec.os_error import text_of
from . import boot, signals, state
from .launch_options import LaunchError, LaunchOptions, check, make_rundir, make_unmade
from .topology import Topology

if TYPE_CHECKING:
    from .boot import BootInfo

# Seconds that followers may outlive their leader before they are told to go, and then until they are killed.
_GRACE, _STUCK = 1.0, 4
# How often a leader that does not answer is asked.
_TRIES = 10


def _preload(links: bool) -> None:
    """Import what all brokers need once, so that the processes forked from here share its memory and its time.

    What the leader alone needs it loads itself, while we fork the others.
    """
    from . import bare_imports

    bare_imports.load_asyncio()
    import asyncio

    from ..modules.discovery import discover_before_fork
    from ..spec import duration
    from . import broker as _broker  # noqa: F401
    from . import launch as _launch  # noqa: F401
    from .modhost import FOLLOWER_MODULES

    if links:
        from . import overlay_sockets as _overlay_sockets  # noqa: F401
    for name in FOLLOWER_MODULES:
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
    check(options)
    size = options.size
    hosts = options.hosts or [boot.local_hostname()] * size
    if len(hosts) != size:
        raise LaunchError(f"--test-hosts names {len(hosts)} hosts, the instance has {size} brokers")
    try:
        topology = _topology(options, hosts)
        quorum = state.quorum_size(options.attrs.get("broker.quorum", ""), size)
    except (boot.BootError, ValueError) as exc:
        raise LaunchError(str(exc)) from None
    linux.name_process("flux-start")
    raise_file_limit()
    rundir = make_rundir(options, later=True)
    cleanup = options.attrs.get("rundir-cleanup", "1") == "1"
    try:
        gc.freeze()
        agents = fork_zygote(size, rundir if cleanup else "")
        try:
            _preload(size > 1)
            # Not before: if we are killed, the zygote removes it.
            make_unmade(options)
            infos = boot.on_one_machine(size, rundir, topology, hosts, boot.prefers_tcp(options.attrs))
            pids = _fork_brokers(infos, agents, options, rundir)
        finally:
            agents.close()
        return _wait(pids, agents, quorum, rundir)
    except OSError as exc:
        raise LaunchError(text_of(exc)) from None
    finally:
        if cleanup:
            # A leader that was killed could not do it.
            shutil.rmtree(rundir, ignore_errors=True)


def _topology(options: LaunchOptions, hosts: list[str]) -> Topology:
    """The shape that a `[bootstrap]` table gives brokers with just these names, else that of `tbon.topo`. Raises
    BootError and ValueError."""
    if "bootstrap" in options.config:
        from .boot_config import topology_of

        shape = topology_of(options.config["bootstrap"], options.attrs.get("tbon.topo", ""), hosts)
        if shape is not None:
            return shape
    return Topology(len(hosts), options.attrs.get("tbon.topo", "kary:32"))


def _fork_brokers(infos: list[BootInfo], agents: Zygote, options: LaunchOptions, rundir: str) -> dict[int, int]:
    """Start them all; returns their ranks by pid."""
    from .launch import run_broker

    pids: dict[int, int] = {}
    own = os.getpid()
    cleanup = options.attrs.get("rundir-cleanup", "1") == "1"
    signals.catch()
    for info in infos:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                if info.rank:
                    options.attrs["rundir-cleanup"] = "0"
                else:
                    _end_with(own)
                code = run_broker(info, options, rundir, own if cleanup else 0, (0, agents.take(info.rank)))
            except BaseException as exc:
                print(f"flux-broker: {text_of(exc)}", file=sys.stderr)
            finally:
                if cleanup and info.rank == 0 and os.getppid() != own:
                    # Who would do it was killed, the zygote perhaps, too: the last of us leaves nothing.
                    shutil.rmtree(rundir, ignore_errors=True)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code & 0xFF)
        pids[pid] = info.rank
        agents.taken(info.rank)
    signals.let_go()
    return pids


def _end_with(starter: int) -> None:
    """In the leader: be told to shut down when `starter` is killed; the followers end with the leader."""
    linux.die_with_parent(signal.SIGTERM)
    if os.getppid() != starter:
        raise LaunchError("flux start was killed")


def _wait(pids: dict[int, int], agents: Zygote, quorum: int, rundir: str) -> int:
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
        pid, status = os.waitpid(-1, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            if pid not in pids:
                # The zygote, or an agent that has outlived it: tasks can do that with processes of their user.
                keeper.have_go_on(pid)
            continue
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
        # Its program before anything else, as long as we live; then what came to us from a zygote that was killed.
        keeper.kill_strays((agents.pid,))
    agents.wait(_STUCK)
    if leader_killed:
        keeper.kill_strays(())
    return failed or result


def _has_run(leader: int, rundir: str) -> bool:
    """Whether the leader (a pid) has its quorum behind it, or is gone."""
    from ..client.handle import Handle

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
