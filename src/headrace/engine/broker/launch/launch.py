"""Start of one broker in this process: alone, or booted by its launcher (`many.py` starts several).

The exec agent of a broker is forked first, before any ZeroMQ context, thread or event loop exists.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
from functools import partial
from typing import Any

from headrace.engine.broker import signals
from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.boot import boot
from headrace.engine.broker.boot.boot import BootError, BootInfo, asked_methods
from headrace.engine.broker.launch.options import LaunchError, LaunchOptions, check, create_planned_rundir, make_rundir
from headrace.engine.broker.module import process
from headrace.engine.broker.module.context import RpcError
from headrace.engine.broker.module.host import exec_modules, names_for
from headrace.engine.process import linux
from headrace.engine.process.spawn import raise_file_limit
from headrace.wire.client.installation import with_flux


def _check_state(statedir: str, is_new: bool) -> None:
    """Raise LaunchError if the leader's `statedir` has too little room.

    If the folder is new, it is removed.
    """
    from headrace.engine.broker.state import disk

    short = disk.shortage(statedir)
    if short:
        if is_new:
            with contextlib.suppress(OSError):
                os.rmdir(statedir)
        raise LaunchError(f"statedir {statedir}: {short}")


def run_broker(
    info: BootInfo,
    options: LaunchOptions,
    rundir: str,
    starter: int = 0,
    agent: tuple[int, socket.socket] | None = None,
) -> int:
    """Run the broker of `info`; returns its exit code.

    `starter` is the pid of a `flux start` that removes `rundir` unless it is killed; 0 if there is none. `agent` is the
    pid of an existing agent and the broker's end of its socket; the pid is 0 if the agent was not forked yet, as in a
    test instance. Without `agent`, an agent is forked here. Raises LaunchError.
    """
    if info.rank == 0:
        if options.attrs.get("statedir"):
            _check_state(options.attrs["statedir"], bool(options.new_statedir))
        if options.config:
            from headrace.formats.config.keys import warnings

            for line in warnings(options.config, options.config_path):
                print(f"flux-broker: warning: {line}", file=sys.stderr)
    if options.verbose:
        for line in (
            f"boot: rank={info.rank} size={info.size}",
            f"parent: {info.parent_uri or 'none'}",
            f"child: {info.bind or 'none'}",
            "entering event loop",
        ):
            print(f"flux-broker: {line}", file=sys.stderr)
    # The brokers of a test instance share a run directory, which is removed when the last of them has ended.
    own = not options.size and options.attrs.get("rundir-cleanup", "1") == "1"
    # A broker of a test instance is one of many forks and gets a title. A single broker keeps its command line.
    linux.name_process(f"flux-broker-{info.rank}", f"flux-broker: rank {info.rank}" if options.size else "")
    raise_file_limit()
    agent_arguments = (rundir if own or starter else "", starter, info.rank)
    if agent is None:
        from headrace.engine.agent.start import spawn_agent

        agent = spawn_agent(*agent_arguments)
    # A new run directory is created only after the fork of the agent, which removes it if this process is killed.
    create_planned_rundir(options)
    attrs = AttrTable({**options.attrs})
    attrs.set("rundir", rundir)
    if info.rank:
        # The setting is meant for the leader, which has many connections.
        attrs.set("tbon.zmq_io_threads", "1")
    forked = _fork_modules(info.rank, attrs, options.config, agent[1])
    from headrace.engine.broker.broker import Broker

    # Only the leader runs a program. Scripts before and after it run everywhere.
    scripts = attrs.get("broker.rc1_path") or attrs.get("broker.rc3_path") or os.environ.get("FLUX_RC_EXTRA")
    env = with_flux(os.environ) if info.rank == 0 or scripts else {}
    command = options.command if info.rank == 0 else None
    another = partial(_spawn_another, *agent_arguments)
    broker = Broker(info, attrs, options.config, options.config_path, command, agent, env, forked, another)
    if options.on_state is not None:
        broker.on_state = options.on_state
    return broker.run()


def _spawn_another(rundir: str, starter: int, rank: int) -> tuple[int, socket.socket]:
    from headrace.engine.agent.start import spawn_another

    return spawn_another(rundir, starter, rank)


def _fork_modules(
    rank: int, attrs: AttrTable, config: dict[str, Any], agent: socket.socket
) -> dict[str, process.Forked]:
    """Fork the processes of this broker's modules.

    They close the agent's socket, which must be closed when the broker ends.
    """
    try:
        names = [name for name in names_for(rank, attrs, config) if name in exec_modules(config)]
    except RpcError:
        # The broker will log the error.
        return {}
    forked: dict[str, process.Forked] = {}
    if names:
        # Otherwise the forks would also write the buffered output.
        sys.stdout.flush()
        sys.stderr.flush()
    for name in names:
        forked[name] = process.fork(name, [agent, *(other.sock for other in forked.values())])
    return forked


def start_here(options: LaunchOptions) -> int:
    """Run one broker in this process, booted by its launcher or alone; returns its exit code.

    Raises LaunchError.
    """
    signals.block()
    starter = os.getppid()
    check(options)
    rundir = make_rundir(options, later=True)
    cleanup = options.attrs.get("rundir-cleanup", "1") == "1"
    shared = os.environ.get("FLUX_START_URI") == f"local://{rundir}/start"
    if shared:
        # `flux start` has more brokers in this run directory, and removes it, unless `flux start` is killed.
        options.attrs["rundir-cleanup"] = "0"
    try:
        # The boot may wait long for other brokers.
        with signals.interruptible():
            info = _boot(options, rundir)
        if shared:
            info.starter = starter
            cleanup = cleanup and not info.rank
        return run_broker(info, options, rundir, starter if shared and cleanup else 0)
    except BootError as exc:
        raise LaunchError(str(exc)) from None
    except signals.Interrupted as exc:
        return 128 + exc.number
    finally:
        if cleanup and not (shared and os.getppid() == starter):
            shutil.rmtree(rundir, ignore_errors=True)


def _boot(options: LaunchOptions, rundir: str) -> BootInfo:
    """The BootInfo of this broker from its boot method. Raises BootError."""
    asked = asked_methods(options.attrs, os.environ)
    table = options.config.get("bootstrap")
    # A table with hosts takes precedence over a launcher, which may be present by chance for a single broker.
    has_hosts = isinstance(table, dict) and bool(table.get("hosts"))
    if asked[:1] == ["config"] or (not asked and has_hosts):
        return _boot_from_config(options)
    # Imported only here: brokers that are forks have no launcher.
    from headrace.engine.broker.boot.pmi import from_launcher, launcher

    launched = launcher({**os.environ, "FLUX_PMI_CLIENT_METHODS": " ".join(asked)})
    if launched is not None:
        return from_launcher(*launched, os.environ, rundir, options.attrs)
    if not asked and table is not None:
        return _boot_from_config(options)
    return boot.alone(options.hosts[0] if options.hosts else "", options.attrs.get("tbon.topo", "kary:32"))


def _boot_from_config(options: LaunchOptions) -> BootInfo:
    from headrace.engine.broker.boot.config import from_config

    if "bootstrap" not in options.config:
        raise BootError("broker.boot-method=config: the configuration has no table [bootstrap]")
    return from_config(options.config, options.attrs.get("tbon.topo", ""))
