"""The broker, one node's daemon: runs the router, tree, local socket, modules and state machine.

Rank 0 leads: it waits for the quorum, runs the initial program, cleans up, and then publishes an event at which the
other brokers shut down, leaves of the tree first. A follower that loses its parent ends at once, and so do its jobs.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import logging
import mmap
import os
import shutil
import signal
import socket
import time
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.engine.broker import bare_imports, flux_commands, signal_actions, signals, startlog
from headrace.engine.broker.boot.boot import BootInfo
from headrace.engine.broker.events import Events
from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.broker.module.host import ModuleHost, has_own_rc1
from headrace.engine.broker.module.process import Forked
from headrace.engine.broker.services import broker_service, growth
from headrace.engine.broker.services.groups import Groups
from headrace.engine.broker.services.runat import Cleanup, end_jobs
from headrace.engine.broker.state import machine
from headrace.engine.broker.tbon.join import (
    expect_children,
    expect_parent,
    leader_state,
    when_parent_is_through,
)
from headrace.engine.broker.tbon.overlay import Overlay
from headrace.engine.process.garbage import LaterTrim, collect_rarely
from headrace.formats.config.files import ConfigError
from headrace.formats.spec import duration as durations
from headrace.formats.spec import jobid
from headrace.formats.spec import message as m
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.os_error import text_of

from .agent_restart import AgentRestarts
from .agentlink import AgentLink
from .attrs import AttrTable
from .budget import Budget
from .local import LocalServer
from .logbook import LEVEL_NAMES, Logbook, parse_line
from .own_attrs import set_own
from .parts import BrokerBase
from .program import Program, run_script
from .quorum import Quorum, log_delay, seconds
from .router import Router, new_uuid

# Seconds to wait for the agent to kill the remaining processes of jobs.
_AGENT_TIMEOUT = 5.0
# Seconds that a broker which leaves the instance waits for its children.
_LEAVE_TIMEOUT = 5.0


class Broker(BrokerBase):
    """The broker of rank `boot.rank`. `run()` returns the exit code."""

    overlay: Overlay
    agent: AgentLink | None
    program: Program | None
    context: ModuleContext

    def __init__(
        self,
        boot: BootInfo,
        attrs: AttrTable,
        config: dict[str, Any],
        config_path: str = "",
        command: list[str] | None = None,
        agent: tuple[int, socket.socket] | None = None,
        env: dict[str, str] | None = None,
        forked: dict[str, Forked] | None = None,
        another_agent: Callable[[], tuple[int, socket.socket]] | None = None,
    ) -> None:
        super().__init__()
        self.boot = boot
        self.rank = boot.rank
        self.size = boot.size
        self.may_grow = boot.may_grow
        self.attrs = attrs
        self.config = config
        self.config_path = config_path
        self.leaders_config = None
        self.command = command
        self.env = dict(os.environ if env is None else env)
        self.owner = os.getuid()
        self.uuid = new_uuid()
        self.exit_code = 0
        self.state = machine.STATES[0]
        self.state_since = time.monotonic()
        # Called with each new state.
        self.on_state: Callable[[str], None] = lambda _state: None
        self.run_waiters = []
        self.shutdown_watchers = []
        self.lost = Idset()
        self.critical_ranks = Idset()
        self.on_grown = []
        self.program = None
        self._agent_socket, self._another_agent = agent, another_agent
        self.forked = forked or {}
        self.agent = None
        self._agent_is_lost = False
        self._restarts: AgentRestarts | None = None
        self._leader_runs = False
        # True once the broker must shut down, so that a start in progress is abandoned.
        self._unwanted = False
        self.ended_by = 0
        self.shutdown_requested = False
        self._own_rundir = False

    # -- life

    def run(self) -> int:
        """Run until the end; returns the exit code of the instance (rank 0) or of this broker."""
        collect_rarely()
        signals.catch()
        m.use_json_codec(msgspec.json.encode, msgspec.json.decode)
        # The loop stops by a callback. A task that waits for the end would cost memory in each of many brokers.
        self.loop = asyncio.SelectorEventLoop()
        try:
            if not self._begin():
                return 1
            self.loop.run_forever()
            # From here on no handler would receive a signal, and its default action would leave files behind.
            signals.block()
            self.local.stop()
            self.overlay.close()
            self._close_agent()
            return self.exit_code
        finally:
            bare_imports.end(self.loop)
            for forked in self.forked.values():
                forked.end()
            if self.agent is not None:
                self.agent.wait(_AGENT_TIMEOUT)
            if self._restarts is not None:
                self._restarts.end()
            self._remove_rundir()

    def _assemble(self) -> None:
        """Create the parts of the broker and connect them. Opens no connection to another process."""
        self.router = Router(self.rank, self.loop)
        # The kernel provides the pages of this buffer only when they are written.
        self.receive_buffer = memoryview(mmap.mmap(-1, 1 << 18))
        self.budget = Budget(lambda level, text: self.log(level, "connector-local", text))
        self.budget.on_freed = LaterTrim(self.loop).request
        self.events = Events(self.rank, self.router, self.owner)
        self.log = Logbook(self.attrs, self.rank)
        self.modules = ModuleHost(self, self.forked)
        set_own(self)
        # Brokers on one machine (boot method "test") share the leader's run directory. Other followers have their own.
        shared = self.rank and self.boot.method == "test"
        self._own_rundir = not shared and self.attrs.get("rundir-cleanup") == "1"
        self.overlay = Overlay(self, self.boot)
        self.overlay.on_ready = self._parent_ready
        self.overlay.on_parent_lost = self._parent_lost
        self.overlay.on_children_gone = self._children_gone
        self.overlay.on_leave = self.leave
        self.overlay.answer_hello = self._answer_hello
        self.local = LocalServer(self, self.attrs.get("local-uri").removeprefix("local://"))
        self.context = broker_service.register(self, self.modules, self.overlay, self.local)
        if self.rank:
            self.events.take_at_once("broker.state", leader_state(self._leader_entered))
            self.events.take_at_once("overlay.grow", growth.follower(self, self.overlay))
        self.quorum = Quorum(self, Groups(self.modules.builtin("groups")))
        self.overlay.on_members = self.quorum.members
        self.pushed = Cleanup(self, self.context)

    def _open(self) -> None:
        """Open the connections of the broker. Raises ConfigError, OSError, zmq.ZMQError."""
        if "access" in self.config:
            # Imported only here, so that most brokers do not keep the tables of all keys in memory.
            from headrace.formats.config.keys import check

            check(self.config, self.config_path)
        if self._agent_socket is not None:
            self.agent = AgentLink(self, self._agent_socket[0])
            self.agent.start(self._agent_socket[1])
            if self._another_agent is not None:
                self._restarts = AgentRestarts(self, self.agent, self._another_agent, self._agent_ended)
                self.agent.lost = self._restarts.lost
        self.local.start()
        self.overlay.start()

    def _begin(self) -> bool:
        """Enter the first states. Logs an error and returns False if the broker cannot open its connections."""
        self._assemble()
        signals.listen(self.loop, functools.partial(signal_actions.received, self))
        try:
            self._open()
        except Exception as exc:
            # Close the agent's socket here, since the broker waits for the agent to end.
            self._close_agent()
            if isinstance(exc, ConfigError):
                self.log(logging.CRITICAL, "connector-local", str(exc))
            elif isinstance(getattr(exc, "errno", None), int):
                self.log(logging.CRITICAL, "broker", f"cannot start: {text_of(exc)}")
            else:
                raise
            self.advance("builtins-fail")
            return False
        self.advance("builtins-success")
        expect_children(self, self.overlay.lose_absent)
        if self.rank == 0:
            self.advance("parent-none")
        else:
            expect_parent(self)
        return True

    def _close_agent(self) -> None:
        if self.agent is not None:
            self.agent.lost = lambda: None
            self.agent.close()

    # -- states

    def advance(self, event: str) -> None:
        new = machine.step(self.state, event)
        if new == self.state:
            return
        text = f"{event}: {self.state}->{new} {durations.encode(round(time.monotonic() - self.state_since, 6))}"
        self.log(logging.INFO, "broker", text)
        self.state = new
        self.state_since = time.monotonic()
        self.on_state(new)
        for msg in self.context.streams("monitor"):
            self.context.respond(msg, {"state": machine.STATES.index(new)})
        action = getattr(self, "_enter_" + new.replace("-", "_"), None)
        if action is not None:
            action()

    def _stream_shutdown_log(self, line: str) -> None:
        """Send a log line to the clients that follow a shutdown and asked for lines of this severity."""
        level, _, host, appname, text = parse_line(line)
        if host != str(self.rank):
            return
        for msg in self.shutdown_watchers:
            if level <= (msg.obj or {}).get("loglevel", 6):
                self.context.respond(msg, {"log": f"{appname}.{LEVEL_NAMES[level]}[{host}]: {text}\n"})

    def _enter_config_sync(self) -> None:
        if self.leaders_config is None:
            # The leader's configuration has not changed since it started, so this broker's own is current.
            self.advance("sync-success" if self.rank else "sync-none")
        else:
            self.spawn(self._sync_config(self.leaders_config))

    async def _sync_config(self, config: dict[str, Any]) -> None:
        try:
            await self.follow_config(config)
        finally:
            self.advance("sync-success")

    def _enter_init(self) -> None:
        self.spawn(self._init())

    async def _init(self) -> None:
        try:
            await self.modules.load_first()
            if self._keeps_startlog():
                await startlog.post_start(self)
            await flux_commands.load_crontabs(self)
        except Exception as exc:
            if not isinstance(exc, (RpcError, OSError)):
                self.log(logging.ERROR, "broker", traceback.format_exc())
            self.exit_code = 1
            self.advance("rc1-fail")
            return
        # No collection first: loading leaves little garbage, and searching for it would take longer than the loading.
        gc.freeze()
        status = await run_script(self, "rc1")
        if status and not self._unwanted:
            self.exit_code = int(self.attrs.get("broker.exit-norestart", "0")) or status
        self.advance("rc1-fail" if status else self._success_event("rc1"))

    def _keeps_startlog(self) -> bool:
        return self.rank == 0 and "kvs" in self.modules.loaded

    def _success_event(self, script: str) -> str:
        return f"{script}-none" if self.attrs.get(f"broker.{script}_path", "default") == "" else f"{script}-success"

    def _enter_quorum(self) -> None:
        self.overlay.report(online=[self.rank])
        if self.rank == 0:
            self.quorum.expect()
        if self._unwanted:
            self.advance("shutdown")
        elif self._leader_runs:
            # This broker joined late and missed the event.
            self.advance("quorum-full")

    def _enter_run(self) -> None:
        waiters, self.run_waiters = self.run_waiters, []
        for msg in waiters:
            self.context.respond(msg, {})
        if self.rank:
            return
        self.context.publish("broker.state", {"state": "run"})
        if "parent-uri" in self.attrs and "jobid" in self.attrs:
            self.spawn(asyncio.to_thread(self._announce_to_parent))
        if self.attrs.get("broker.rc2_none") == "1":
            return
        if not self.command and not os.isatty(0):
            self.exit_code = 1
            self.log(logging.ERROR, "broker", "stdin is not a tty - can't run interactive shell")
            self.advance("rc2-fail")
            return
        self.program = Program(self, self.command, self._program_done)
        try:
            self.program.start()
        except OSError as exc:
            self.exit_code = 126 if exc.errno in (errno.EACCES, errno.ENOEXEC) else 127
            self.log(logging.ERROR, "broker", f"rc2.0: {exc.filename or self.program.title}: {exc.strerror}")
            self.advance("rc2-fail")

    def _announce_to_parent(self) -> None:
        """Store this instance's URI in the parent instance's record of this job.

        `flux uri` and `flux jobs` use it. Also send the parent instance the ranks that are critical; this instance can
        lose any other node.
        """
        # Few brokers have a parent instance.
        from headrace.wire.client.handle import Handle

        path = self.attrs.get("local-uri").removeprefix("local://")
        id = jobid.parse(self.attrs.get("jobid"))
        try:
            with Handle(self.attrs.get("parent-uri")) as handle:
                handle.rpc("job-manager.memo", {"id": id, "memo": {"uri": f"ssh://{self.boot.hostname}{path}"}}).get()
                critical = self.attrs.get("broker.critical-ranks")
                handle.rpc("job-exec.critical-ranks", {"id": id, "ranks": critical}).get()
        except OSError as exc:
            text = f"cannot report this instance to its parent instance: {text_of(exc)}"
            self.loop.call_soon_threadsafe(self.log, logging.WARNING, "broker", text)

    def _program_done(self, status: int, text: str) -> None:
        # The exit code names the signal or time limit that ended the instance, whatever status its program returned.
        self.exit_code = 128 + self.ended_by if self.ended_by else status
        level = logging.ERROR if status else logging.INFO
        self.log(level, "broker", text)
        self.advance("rc2-fail" if status else "rc2-success")

    def begin_shutdown(self) -> None:
        if self.shutdown_watchers and self._stream_shutdown_log not in self.log.followers:
            self.log.followers.append(self._stream_shutdown_log)
        if self.program is not None and self.program.running:
            self._unwanted = self.state == "init"
            self.program.stop()
        else:
            self._unwanted = True
            self.advance("shutdown")

    def signal_jobs(self, number: int) -> None:
        self.spawn(self._signal_jobs(number))

    async def _signal_jobs(self, number: int) -> None:
        try:
            await self.context.rpc("job-manager.killall", {"dry_run": False, "userid": -1, "signum": number})
        except RpcError as exc:
            self.log(logging.ERROR, "broker", f"{signal.Signals(number).name} was not sent to jobs: {exc}")

    def _enter_cleanup(self) -> None:
        if self.rank:
            # The leader cleans up for the whole instance.
            self.advance("cleanup-none")
        else:
            self.spawn(self._cleanup())

    async def _cleanup(self) -> None:
        limit = seconds(self, "broker.cleanup-timeout")
        status = await self.pushed.run(limit)
        # A failed or timed-out cleanup after a signal determines the exit code, as in Flux.
        if status and (self.ended_by or not self.exit_code):
            self.exit_code = status
        # Without an agent nothing reports the end of a job, so do not wait for the jobs.
        steps = await end_jobs(self, len(self.pushed.commands), limit, wait=not self._agent_is_lost)
        if status:
            self.advance("cleanup-fail")
        else:
            self.advance("cleanup-success" if self.pushed.commands or steps else "cleanup-none")

    def _enter_shutdown(self) -> None:
        for msg in self.run_waiters:
            self.context.respond_error(msg, errno.ENODEV, "the broker is shutting down")
        self.run_waiters = []
        if self.rank == 0:
            self.context.publish("broker.state", {"state": "shutdown", "signal": self.ended_by})
        if not any(child.alive for child in self.overlay.children.values()):
            self.loop.call_soon(self.advance, "children-none")
            return
        limit = seconds(self, "broker.shutdown-timeout")
        if limit is not None:
            self.loop.call_later(limit, self.advance, "shutdown-timeout")
        warn = seconds(self, "broker.shutdown-warn")
        if warn:
            self.loop.call_later(warn, self._shutdown_slow)

    def _shutdown_slow(self) -> None:
        if self.state == "shutdown":
            children = self.overlay.children.items()
            log_delay(self, "shutdown", Idset(rank for rank, child in children if child.alive))

    def _children_gone(self) -> None:
        if self.state == "shutdown":
            self.advance("children-complete")

    def _enter_finalize(self) -> None:
        self.spawn(self._finalize())

    async def _finalize(self) -> None:
        event = self._success_event("rc3")
        try:
            if self._keeps_startlog():
                await startlog.post_finish(self)
            if self.rank == 0 and await flux_commands.dump(self):
                self.exit_code = self.exit_code or 1
            status = await run_script(self, "rc3")
            if status:
                event = "rc3-fail"
                self.exit_code = self.exit_code or status
            for name in self.modules.forgotten():
                self.log(logging.CRITICAL, "broker", f"broker module '{name}' was not properly shut down")
                self.exit_code = self.exit_code or 1
            await self.modules.remove_all()
        except Exception as exc:
            self.log(logging.ERROR, "broker", f"rc3: {text_of(exc)}")
            event = "rc3-fail"
        self.advance(event)

    def _enter_goodbye(self) -> None:
        for msg in self.shutdown_watchers:
            self.context.respond_error(msg, errno.ENODATA)
        self.loop.call_soon(self.advance, "goodbye")

    def _enter_unload_builtins(self) -> None:
        self.advance("builtins-done")

    def _enter_exit(self) -> None:
        self.log.flush()
        # Stop after one more turn, so that the messages of the last handlers reach their sockets.
        self.loop.call_soon(self.router.at_turn_end, self.loop.stop)

    # -- events from outside

    def _answer_hello(self) -> dict[str, Any]:
        """This broker's data for the response to a child's hello."""
        state = self.state
        if not self.past("quorum"):
            # The child has missed the leader's event. This broker has it and acts on it later.
            state = "shutdown" if self._unwanted else "run" if self._leader_runs else state
        answer = {"hosts": self.boot.hosts, "state": state, "signal": self.ended_by}
        return answer if self.leaders_config is None else {**answer, "config": self.leaders_config}

    def _parent_ready(self, body: dict[str, Any]) -> None:
        hosts = body.get("hosts")
        if not self.boot.hosts and isinstance(hosts, list):
            self.boot.hosts = [str(host) for host in hosts]
            self.attrs.set("hostlist", str(Hostlist(self.boot.hosts)))
        elif isinstance(hosts, list):
            growth.follow(self, self.overlay, [str(host) for host in hosts])
        config = body.get("config")
        if isinstance(config, dict):
            self.leaders_config = config
        self._leader_runs = body.get("state") == "run"
        self._unwanted = body.get("state") in ("shutdown", "finalize", "goodbye", "unload-builtins")
        if self._unwanted:
            self._leader_ended(body.get("signal", 0))
        if has_own_rc1(self.attrs) and not self._unwanted:
            when_parent_is_through(self, self.advance)
        else:
            self.advance("parent-ready")

    def _leader_entered(self, new: str, ended_by: int) -> None:
        """Handle rank 0's change to state `new`. `ended_by` is the signal that made it shut down, or 0."""
        if new == "run":
            self._leader_runs = True
            self.advance("quorum-full")
        elif new == "shutdown" and not self.past("cleanup"):
            self._leader_ended(ended_by)
            self._give_up_rc1()
            self.advance("shutdown")

    def _leader_ended(self, ended_by: int) -> None:
        """Set the exit code of a follower whose leader was ended by a signal.

        It is `broker.exit-restart` (flux-broker-attributes(7)) if that is set, so that a service manager can restart
        the follower for the next leader.
        """
        self.ended_by = ended_by
        if ended_by:
            self.exit_code = self.exit_code or int(self.attrs.get("broker.exit-restart", "0"))

    def _give_up_rc1(self) -> None:
        """Abandon a start: stop the user's rc1 script, and wait only for the broker's own modules."""
        self._unwanted = True
        if self.state == "init" and self.program is not None:
            self.program.stop()

    def _parent_lost(self, why: str) -> None:
        if self.past("shutdown"):
            return
        self.log(logging.CRITICAL, "broker", f"lost the parent broker: {why}")
        self.exit_code = 1
        self.advance("parent-lost")

    def _agent_ended(self, why: str) -> None:
        """Handle the final loss of the exec agent."""
        self._agent_is_lost = True
        self.log(logging.CRITICAL, "broker", why)
        self.leave_lost("exec agent ended")

    def leave_lost(self, why: str) -> None:
        self.exit_code = self.exit_code or 1
        if self.rank == 0:
            self.begin_shutdown()
        else:
            self.overlay.close(in_order=False)
            self._parent_lost(why)

    def leave(self) -> None:
        if self.stopping:
            return
        self.overlay.admit()
        self.overlay.ask_to_leave()
        if self.state == "init":
            self._give_up_rc1()
            return
        self.loop.call_later(_LEAVE_TIMEOUT, self.advance, "shutdown-timeout")
        self.advance("shutdown")

    def _remove_rundir(self) -> None:
        rundir = self.attrs.get("rundir")
        if self._own_rundir and rundir:
            shutil.rmtree(rundir, ignore_errors=True)
