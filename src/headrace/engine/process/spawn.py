"""Starting one process with posix_spawn.

The agent sets properties that posix_spawn cannot set (directory, limits) on itself before the spawn. It sets limits
that would affect the agent on the child afterwards. The child has the processors of the thread that spawns it
(`Bound`). posix_spawn is used instead of fork, since it does not copy page tables, and raises an exception if exec
fails.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import process_time
from typing import Any

from headrace.engine.process import linux

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# All signals that can be reset. Without this list, the C library reads the state of each, a tenth of a spawn's time.
_RESET = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})

_Action = tuple[int, int, int] | tuple[int, int, str, int, int]

LIMITS = {
    name[len("RLIMIT_") :].lower(): getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")
}
_soft: dict[int, tuple[int, int]] = {}
# These limits may affect the agent itself while it has them for a start: SIGXCPU for its own CPU time, or a lack of
# memory. If they leave it less than this (seconds, bytes), they are set on the running child instead.
_OWN_TIME, _OWN_MEMORY = 5, 64 << 20
_NO_LIMIT = resource.RLIM_INFINITY
_OWN = frozenset({resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_DATA})
# The original limits from before raise_file_limit, for spawned processes.
_given: dict[int, int] = {}
# The number of descriptors that a broker and its agent request. They never need more.
_FILES = 1 << 20


class Bound:
    """Runs functions on given processors, one at a time, in a thread that sleeps in between.

    A process has the processors of the thread that spawns it, so a process spawned here is bound from its first
    instruction. A running thread that binds itself moves at once, and waits until the process on that processor has
    used up its time slice. A sleeping thread is bound without a move, and runs soon after it is woken, since its own
    slices are short. The calling thread does not move. The thread starts with the first call, and lasts as long as its
    process.
    """

    def __init__(self) -> None:
        self._id = 0
        self._begin, self._ended = _thread.allocate_lock(), _thread.allocate_lock()
        self._todo: Callable[[], int] = int
        self._result = 0
        self._error: BaseException | None = None

    def run(self, cpus: frozenset[int], todo: Callable[[], int]) -> int:
        """Run `todo()` on the processors `cpus`; returns its result.

        Raises the exceptions of `todo`, and OSError if `cpus` has no usable processor.
        """
        if not self._id:
            self._start()
        # Set for each call, since other code may also bind threads.
        os.sched_setaffinity(self._id, cpus)
        self._todo = todo
        self._begin.release()
        self._ended.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result

    def _start(self) -> None:
        self._begin.acquire()
        self._ended.acquire()
        # Signals are for the main thread. The new thread inherits the mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            _thread.start_new_thread(self._serve, ())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._ended.acquire()

    def _serve(self) -> None:
        linux.ask_for_short_slices()
        self._id = _thread.get_native_id()
        while True:
            self._ended.release()
            self._begin.acquire()
            try:
                self._result = self._todo()
            except BaseException as exc:
                self._error = exc


_bound = Bound()


def find_program(name: str, path: str) -> str:
    """The file for the command `name` in `path`. Raises OSError(ENOENT or EACCES), as execvp would.

    Not cached: a file may have been installed into an earlier folder since the last start.
    """
    if "/" in name:
        return name
    denied = False
    for folder in path.split(":"):
        full = f"{folder}/{name}" if folder else name
        if os.path.isfile(full):
            if os.access(full, os.X_OK):
                return full
            denied = True
    number = errno.EACCES if denied else errno.ENOENT
    raise OSError(number, os.strerror(number))


def raise_file_limit() -> None:
    """Raise the limit of descriptors for this process and its forks.

    The usual limit is meant for programs of one user. Spawned processes get the original limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        _soft[resource.RLIMIT_NOFILE] = (most, hard)
        _given[resource.RLIMIT_NOFILE] = soft


def limits_that_differ(wanted: Mapping[str, int]) -> dict[int, int]:
    """The soft limits (resource number to value) to set for a child because it would not inherit them."""
    out = dict(_given)
    for name, value in wanted.items():
        number = LIMITS.get(name)
        if number is None:
            continue
        known = _soft.get(number)
        if known is None:
            known = _soft[number] = resource.getrlimit(number)
        soft, hard = known
        if hard != resource.RLIM_INFINITY and (value == resource.RLIM_INFINITY or value > hard):
            value = hard
        if value != soft:
            out[number] = value
        else:
            out.pop(number, None)
    return out


def spawn(
    argv: list[str],
    env: Mapping[str, str],
    fds: Sequence[tuple[int, int]],
    limits: Mapping[int, int] | None = None,
    terminal: str = "",
    session: bool = False,
    group: int = 0,
    runs_text: bool = True,
    cpus: frozenset[int] | None = None,
) -> int:
    """Start `argv` in a new process group, or with `session` in a new session; returns the pid.

    A new session has no controlling terminal. `fds` are (ours, its) pairs. The process is bound to the processors
    `cpus`, or with None to those of this process.

    With `runs_text`, an executable file that is not a program and names no interpreter is run as a script of /bin/sh.

    With `terminal`, a device that controls no session, the process leads a session with the device as its standard
    streams and controlling terminal, in the foreground.

    Raises OSError: ENOENT, EACCES and ENOEXEC are about the program, E2BIG about the arguments.
    """
    path = find_program(argv[0], env.get("PATH", _DEFAULT_PATH))
    actions: list[_Action] = [(os.POSIX_SPAWN_DUP2, ours, its) for ours, its in fds]
    if terminal:
        # The first terminal that a session leader opens becomes its controlling terminal; an inherited one does not.
        opened = (os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR, 0)
        actions = [opened, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2), *actions]
    how = (_given if limits is None else limits, session or bool(terminal), group, cpus)
    try:
        return _spawn(path, argv, env, actions, *how)
    except OSError as exc:
        if exc.errno != errno.ENOEXEC or not runs_text:
            raise
        return _spawn("/bin/sh", ["/bin/sh", path, *argv[1:]], env, actions, *how)


def _spawn(
    path: str,
    argv: list[str],
    env: Mapping[str, str],
    actions: list[_Action],
    limits: Mapping[int, int],
    new_session: bool,
    group: int,
    cpus: frozenset[int] | None,
) -> int:
    after = (
        ()
        if _OWN.isdisjoint(limits)
        else [number for number in _OWN if _affects_this_process(number, limits.get(number, _NO_LIMIT))]
    )
    before = {number: value for number, value in limits.items() if number not in after} if after else limits
    mask = _no_signals(before) if before else ()
    try:
        how: dict[str, Any] = {"setsid": True} if new_session else {"setpgroup": group}
        start = partial(os.posix_spawn, path, argv, env, file_actions=actions, setsigmask=mask, setsigdef=_RESET, **how)
        pid = start() if cpus is None else _bound.run(cpus, start)
    finally:
        for number in before:
            resource.setrlimit(number, _soft[number])
    for number in after:
        # The child runs without these limits for a moment. It may have ended already. If its program changes the user,
        # setting its limits may require privileges.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            resource.prlimit(pid, number, (limits[number], _soft[number][1]))
    return pid


def _affects_this_process(number: int, value: int) -> bool:
    """True if this process cannot have the limit even for the time of a start."""
    if value == _NO_LIMIT:
        return False
    if number == resource.RLIMIT_CPU:
        return value < process_time() + _OWN_TIME
    with open("/proc/self/statm") as file:
        pages = file.read().split()
    # proc(5): the whole size, and the size of data and stack.
    used = int(pages[0 if number == resource.RLIMIT_AS else 5]) * resource.getpagesize()
    return value < used + _OWN_MEMORY


def _no_signals(limits: Mapping[int, int]) -> Iterator[int]:
    """An empty signal mask; while it is iterated, the limits for the child are set.

    The C library refuses file actions for descriptors beyond the current limit, which may be higher than the child's.
    Python iterates over the mask after it has read the actions and before it starts the child.
    """
    for number, value in limits.items():
        resource.setrlimit(number, (value, _soft[number][1]))
    yield from ()


# Command lines for our own programs, in a Python with the search path of this process. `python -m` would search the
# working directory first, and anyone who can write there could run code as the user of this process: for an instance of
# root that was started in /tmp, that is any user. The first argument is the search path, one folder per line.
_PATH = "import sys; sys.path[:] = sys.argv.pop(1).split(chr(10)); "
_MODULE = f"{_PATH}import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"


def calling(statement: str, *arguments: str, first: str = "") -> list[str]:
    """The command line of a Python that executes a statement; `sys.argv[1:]` are the arguments.

    `first` is a folder to search before those of this process.
    """
    return [sys.executable, "-c", _PATH + statement, _folders(first), *arguments]


def running(module: str, *arguments: str) -> list[str]:
    """The command line of a Python that runs a module, as `python -m` does."""
    return [sys.executable, "-c", _MODULE, _folders(""), module, *arguments]


def _folders(first: str) -> str:
    # "" stands for the working directory.
    return "\n".join(folder for folder in (first, *sys.path) if folder)
