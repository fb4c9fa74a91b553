"""`flux top`: reads keys and the responses of instances, and draws a curses screen."""

from __future__ import annotations

import errno
import os
import select
import sys
import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.eventlog_options import option_wants_color
from headrace.cli.common.getopts import Command
from headrace.cli.top.layout import ASCII, UNICODE, dump, heart, pieces
from headrace.cli.top.view import Instance, View
from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import CLEANUP, RUN
from headrace.formats.spec.message import EVENT
from headrace.formats.spec.stdlib_parts import signal
from headrace.wire.client.handle import Handle
from headrace.wire.client.reactor import Reactor
from headrace.wire.query import QueryError
from headrace.wire.query.job_info import JobInfo
from headrace.wire.query.uri import reachable, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set

    from headrace.wire.client.handle import Rpc
    from headrace.wire.client.reactor import Timer

PREFIX = "flux-top: "

_COMMAND = Command(
    "flux-top",
    "[OPTIONS] [TARGET]",
    "Show the jobs and resources of an instance as they change (press q to quit)",
    (
        ("", "color", "[WHEN]", "Color the screen: always, never, or auto (default)"),
        ("q", "queue", "NAME", "Start with the jobs and resources of this queue"),
        ("", "test-exit", "", "Exit when everything was shown once"),
        ("", "test-exit-dump", "FILE", "With --test-exit, write the content of the screen to FILE"),
    ),
)

_ATTRS = ["annotations", "userid", "state", "name", "queue", "nnodes", "ntasks", "t_run"]
# The number of jobs to request: more than any terminal has rows.
_LONGEST = 1000
# Seconds between two listings while the numbers of jobs change, and between drawings of the times.
_LIST_PAUSE, _DRAW_PAUSE = 2.0, 1.0
_HEART_SHOWN = 0.5
_MESSAGE_SHOWN = 4.0
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
# Actions of keys. A key with a name in curses is listed by the name without KEY_.
_ACTIONS = {
    "q": "quit",
    "j": "down",
    "DOWN": "down",
    "k": "up",
    "UP": "up",
    "l": "next",
    "RIGHT": "next",
    "h": "previous",
    "LEFT": "previous",
    "\n": "open",
    "\r": "open",
    "ENTER": "open",
    "d": "details",
    "\f": "redraw",
}


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    operands = options.need(0, 1)
    colored = option_wants_color(options)
    if not os.isatty(0):
        raise CommandError("stdin is not a terminal")
    if not os.isatty(1):
        raise CommandError("stdout is not a terminal")
    curses = _curses()
    reactor = Reactor()
    screen = _Screen(curses, colored)
    top = _Top(reactor, screen)
    try:
        top.enter(_connect(operands[0] if operands else ""), "", options.get("queue"))
    except ValueError as exc:
        raise CommandError(str(exc)) from None
    # From here on the terminal must be restored in any case. A signal ends the loop; signals after the loop are
    # ignored. Interrupts may come twice: a broker also forwards the terminal's interrupt to its initial program.
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    top.end_by_signals()
    try:
        screen.open()
        status = top.run(options.has("test-exit"))
    finally:
        screen.close()
    if options.has("test-exit") and options.has("test-exit-dump"):
        with open(options.get("test-exit-dump"), "w", encoding="utf-8") as file:
            file.write(dump(top.watched[-1].view, time.time()))
    return status


def _curses() -> Any:
    """Import curses and check that the terminal supports it. Raises CommandError."""
    try:
        import curses
    except ImportError:
        raise CommandError("this Python has no module curses, which is needed to draw the screen") from None
    import locale

    # curses writes characters in the encoding of the locale.
    try:
        locale.setlocale(locale.LC_ALL, "")
    except locale.Error:
        pass
    try:
        curses.setupterm()
        moves = curses.tigetstr("cup")
    except curses.error:
        moves = None
    if not moves:
        term = os.environ.get("TERM", "")
        raise CommandError(f"terminal does not support required capabilities (TERM={term} cannot place the cursor)")
    return curses


def _connect(target: str) -> Handle:
    """Connect to the instance of `target`, or to the enclosing one for "". Raises CommandError."""
    uri: Optional[str] = None
    if target:
        try:
            uri = reachable(resolve(target))
        except (QueryError, OSError) as exc:
            text = exc.strerror if isinstance(exc, OSError) else str(exc)
            raise CommandError(f"failed to resolve target to a Flux URI\n{text}") from None
    try:
        return Handle(uri)
    except OSError as exc:
        raise CommandError(f"error connecting to Flux: {exc.strerror}") from None


class _Screen:
    """The terminal under the control of curses."""

    def __init__(self, curses: Any, colored: bool) -> None:
        self._curses = curses
        self._colored = colored
        self._window: Any = None
        self._styles: Dict[str, int] = {}
        self._actions = {
            ord(name) if len(name) == 1 else getattr(curses, f"KEY_{name}"): action for name, action in _ACTIONS.items()
        }
        utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        self._signs = UNICODE if utf8 and not os.environ.get("FLUX_F58_FORCE_ASCII") else ASCII

    def open(self) -> None:
        curses = self._curses
        self._window = curses.initscr()
        curses.noecho()
        curses.cbreak()
        self._window.keypad(True)
        self._window.nodelay(True)
        try:
            curses.curs_set(0)
        except curses.error:
            # A terminal that cannot hide its cursor.
            pass
        self._styles = {"bold": curses.A_BOLD, "dim": curses.A_DIM, "reverse": curses.A_REVERSE}
        if self._colored and curses.has_colors():
            curses.start_color()
            curses.use_default_colors()
            colors = ("yellow", "red", "green", "blue")
            for number, name in enumerate(colors, 1):
                curses.init_pair(number, getattr(curses, f"COLOR_{name.upper()}"), -1)
                self._styles[name] = curses.color_pair(number)

    def close(self) -> None:
        """Restore the terminal."""
        if self._window is None:
            return
        try:
            self._curses.curs_set(1)
        except self._curses.error:
            pass
        self._curses.endwin()
        self._window = None

    def resize(self) -> None:
        """Adapt to the current size of the terminal."""
        try:
            size = os.get_terminal_size(1)
        except OSError:
            return
        if size.lines and size.columns:
            self._curses.resizeterm(size.lines, size.columns)

    def action(self) -> Optional[str]:
        """The action of the next key, "" for a key without one, None if no key was pressed."""
        key = self._window.getch()
        return None if key == -1 else self._actions.get(key, "")

    def draw(self, view: View, redraw_all: bool = False) -> None:
        """Draw a view; with `redraw_all`, also the parts that have not changed."""
        window = self._window
        rows, columns = window.getmaxyx()
        window.erase()
        for piece in pieces(view, time.time(), rows, columns, self._signs):
            self._put(rows, columns, piece)
        if view.heart:
            self._put(rows, columns, heart(columns, self._signs))
        if redraw_all:
            window.redrawwin()
        window.refresh()

    def _put(self, rows: int, columns: int, piece: Any) -> None:
        room = columns - piece.column
        if piece.row >= rows or room <= 0 or not piece.text:
            return
        style = 0
        for name in piece.styles:
            style |= self._styles.get(name, 0)
        try:
            self._window.addnstr(piece.row, piece.column, piece.text, room, style)
        except self._curses.error:
            # The text is written, but the cursor cannot advance past the last position of the screen.
            pass


class _Watched:
    """An instance that is being watched; its responses update its view."""

    def __init__(self, top: _Top, handle: Handle, title: str, queue: str) -> None:
        self.handle = handle
        self._top = top
        self._list_timer: Optional[Timer] = None
        self._heart_timer: Optional[Timer] = None
        self._asks_resources = False
        # Kinds of data that were received at least once: "jobs", "list", "resources".
        self.known: Set[str] = set()
        self.view = View(_instance(handle, title), handle.rpc("config.get").get(), _is_owner(handle))
        if queue:
            self.view.choose_queue(queue)
        handle.message_types = EVENT
        handle.message_callback = lambda _msg: self._beat()
        handle.subscribe("heartbeat.pulse")
        handle.stream("job-list.job-stats", {}).then(self._counted)
        self._ask_jobs()
        self.ask_resources()

    def close(self) -> None:
        for timer in (self._list_timer, self._heart_timer):
            if timer is not None:
                timer.stop()
        self.handle.close()

    def _beat(self) -> None:
        self.view.heart = True
        if self._heart_timer is not None:
            self._heart_timer.stop()
        self._heart_timer = self._top.reactor.add_timer(_HEART_SHOWN, self._rest)
        self.ask_resources()
        self._top.changed(self)

    def _rest(self) -> None:
        self.view.heart = False
        self._top.changed(self)

    def _counted(self, call: Rpc) -> None:
        try:
            self.view.stats = call.get()
        except OSError as exc:
            # The instance is not up yet, or does not allow guests to ask.
            if exc.errno not in (errno.ENOSYS, errno.EPERM, errno.ENODATA):
                raise
        if self._list_timer is None or not self._list_timer.active:
            self._list_timer = self._top.reactor.add_timer(_LIST_PAUSE if self.known else 0.0, self._list_again)
        self._learned("jobs")

    def _list_again(self) -> None:
        try:
            self._ask_jobs()
        except OSError as exc:
            self._top.lost(self, exc)

    def _ask_jobs(self) -> None:
        request = {"max_entries": _LONGEST, "attrs": _ATTRS, "constraint": {"states": [RUN | CLEANUP]}}
        # A local list, because another listing may begin before this one has ended.
        listed: List[Dict[str, Any]] = []
        self.handle.stream("job-list.list", request).then(lambda call: self._list(call, listed))

    def _list(self, call: Rpc, listed: List[Dict[str, Any]]) -> None:
        try:
            listed += call.get()["jobs"]
            return
        except OSError as exc:
            if exc.errno not in (errno.ENODATA, errno.ENOSYS):
                raise
        # A job may be in CLEANUP without having run.
        self.view.jobs = [JobInfo(raw) for raw in listed if "t_run" in raw]
        self._learned("list")

    def ask_resources(self) -> None:
        """Ask for allocated and down resources, unless the previous request is still pending."""
        if not self._asks_resources:
            self._asks_resources = True
            topic = os.environ.get("FLUX_RESOURCE_LIST_RPC", "resource.sched-status")
            self.handle.rpc(topic, nodeid=0).then(lambda call: self._counted_resources(call, "sched.resource-status"))

    def _counted_resources(self, call: Rpc, other: str) -> None:
        try:
            self.view.set_resources(call.get())
        except OSError as exc:
            if exc.errno not in (errno.ENOSYS, errno.EPERM):
                raise
            if other and exc.errno == errno.ENOSYS:
                self.handle.rpc(other, nodeid=0).then(lambda call: self._counted_resources(call, ""))
                return
        self._asks_resources = False
        self._learned("resources")

    def _learned(self, what: str) -> None:
        self.known.add(what)
        self._top.changed(self)


class _Top:
    """The stack of instances that the user entered.

    The last one is on the screen; all of them are updated.
    """

    def __init__(self, reactor: Reactor, screen: _Screen) -> None:
        self.reactor = reactor
        self.watched: List[_Watched] = []
        self._screen = screen
        self._stale = True
        self._redraw_all = False
        self._until_known = False
        self._status = 0
        self._message_timer: Optional[Timer] = None

    def enter(self, handle: Handle, title: str, queue: str = "") -> None:
        """Show another instance. Raises OSError, ValueError."""
        try:
            one = _Watched(self, handle, title, queue)
        except Exception:
            handle.close()
            raise
        self.watched.append(one)
        self.reactor.add_fd(handle.fileno(), lambda _revents: self._read(one))
        self._stale = self._redraw_all = True

    def end_by_signals(self) -> None:
        for number in _ENDING:
            self.reactor.add_signal(number, self._ending(number))

    def run(self, until_known: bool) -> int:
        """Run until the user leaves the first instance, or with `until_known` until all data was received.

        Returns the exit status.
        """
        reactor = self.reactor
        self._until_known = until_known
        reactor.add_fd(0, self._keys)
        reactor.add_signal(signal.SIGWINCH, self._resized)
        reactor.add_timer(_DRAW_PAUSE, self._tick, _DRAW_PAUSE)
        reactor.add_turn("prepare", self._turn)
        reactor.run()
        return self._status

    def changed(self, one: _Watched) -> None:
        self._stale = self._stale or bool(self.watched and one is self.watched[-1])

    def _ending(self, number: int) -> Callable[[], None]:
        def end() -> None:
            self._status = 128 + number

        return end

    def _resized(self) -> None:
        self._screen.resize()
        self._stale = self._redraw_all = True

    def _tick(self) -> None:
        self._stale = True

    def _turn(self) -> None:
        """Before the loop waits: stop it after a signal, dispatch received messages, and draw changes."""
        if self._status:
            self.reactor.stop()
            return
        for one in list(self.watched):
            try:
                one.handle.dispatch()
            except OSError as exc:
                self.lost(one, exc)
        if self._stale and self.watched:
            self._screen.draw(self.watched[-1].view, self._redraw_all)
            self._stale = self._redraw_all = False
            if self._until_known and len(self.watched[-1].known) == 3:
                self.reactor.stop()

    def _read(self, one: _Watched) -> None:
        try:
            one.handle.pump(0)
        except OSError as exc:
            self.lost(one, exc)

    def lost(self, one: _Watched, exc: OSError) -> None:
        """Leave an instance that has ended or failed, and those inside it.

        Raises CommandError if it was the first.
        """
        text = f"lost connection to Flux: {exc.strerror}"
        while one in self.watched:
            self._leave()
        if not self.watched:
            raise CommandError(text)
        self._say(text)

    def _leave(self) -> None:
        one = self.watched.pop()
        self.reactor.remove_fd(one.handle.fileno())
        one.close()
        self._stale = self._redraw_all = True

    def _say(self, text: str) -> None:
        """Show a message until a key is pressed, or for some seconds."""
        self.watched[-1].view.message = text
        self._stale = True
        if self._message_timer is not None:
            self._message_timer.stop()
        self._message_timer = self.reactor.add_timer(_MESSAGE_SHOWN, self._hush)

    def _hush(self) -> None:
        for one in self.watched:
            one.view.message = ""
        self._stale = True

    def _keys(self, revents: int) -> None:
        action = self._screen.action()
        if action is None and revents & select.POLLHUP:
            # The terminal is gone.
            self.reactor.stop()
        while action is not None and self.watched:
            self._act(action)
            action = self._screen.action()

    def _act(self, action: str) -> None:
        one = self.watched[-1]
        self._stale = True
        if one.view.message:
            self._hush()
        elif action == "quit":
            self._leave()
            if not self.watched:
                self.reactor.stop()
        elif action in ("down", "up"):
            one.view.move(1 if action == "down" else -1)
        elif action in ("next", "previous"):
            one.view.rotate(1 if action == "next" else -1)
        elif action == "open":
            self._open(one)
        elif action == "details":
            one.view.ended_in_detail = not one.view.ended_in_detail
        elif action == "redraw":
            self._redraw_all = True

    def _open(self, one: _Watched) -> None:
        """Enter the instance of the selected job, if that is an instance."""
        job = one.view.selected_job()
        if job is None or not job.get("uri"):
            return
        try:
            handle = Handle(reachable(job.get("uri")))
        except OSError as exc:
            self._say(f"error connecting to Flux: {exc.strerror}")
            return
        try:
            self.enter(handle, f"{one.view.instance.title}/{job.get('id.f58')}")
        except (OSError, ValueError) as exc:
            self._say(str(exc))


def _instance(handle: Handle, title: str) -> Instance:
    """The constant values of an instance. The default title is its job id in the parent instance."""
    if not title:
        try:
            title = jobid.encode(jobid.parse(handle.attr_get("jobid")), "f58")
        except OSError:
            # The instance is not a job.
            title = ""
    try:
        started = float(handle.attr_get("broker.starttime"))
    except OSError:
        started = time.time()
    return Instance(
        jobid.shown(title),
        int(handle.attr_get("size")),
        int(handle.attr_get("instance-level")),
        handle.attr_get("version"),
        started,
        _expiration(handle),
    )


def _expiration(handle: Handle) -> float:
    """When the instance's resources expire, in seconds since the epoch; 0 if they do not, or for a guest."""
    import json
    from binascii import a2b_base64

    request = {"key": "resource.R", "namespace": "primary", "flags": 0}
    try:
        found = handle.rpc("kvs.lookup", request).get()["val"]
        return float(json.loads(a2b_base64(found["data"]))["execution"].get("expiration", 0.0))
    except (OSError, KeyError, ValueError):
        return 0.0


def _is_owner(handle: Handle) -> bool:
    return handle.attr_get("security.owner") == str(os.getuid())
