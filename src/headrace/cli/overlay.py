"""`flux overlay`: shows the tree of brokers and its health, and changes the tree.

The health is queried from each broker with children. Brokers below an offline or lost one cannot be queried; they are
shown with its state, as ghosts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, dispatch
from headrace.formats.spec import duration
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

    from headrace.cli.common.getopts import Options


PREFIX = "flux-overlay: "

_TABLE = {
    "status": ("Show the tree of brokers and their health", None),
    "errors": ("Print lost brokers and the reasons", None),
    "lookup": ("Print the host of a rank, or the rank of a host", None),
    "parentof": ("Print the parent of a rank", None),
    "disconnect": ("Disconnect a broker and its subtree", None),
    "grow": ("Allow more hosts to join the instance", None),
}
_ERRORS = Command(
    "flux overlay errors",
    "[OPTIONS]",
    "Print lost brokers and the reasons",
    (("t", "timeout", "FSD", "Maximum wait for the response of a broker (default: 0.5s, 0: no limit)"),),
)
_LOOKUP = Command("flux overlay lookup", "TARGET", "Print the host of a rank, or the rank of a host")
_PARENTOF = Command("flux overlay parentof", "RANK", "Print the parent of a rank")
_DISCONNECT = Command(
    "flux overlay disconnect",
    "[OPTIONS] TARGET",
    "Disconnect the broker of a rank or host, and its subtree",
    (("r", "parent", "NODEID", "The rank of its parent (default: found in the tree)"),),
)
_GROW = Command("flux overlay grow", "HOSTS", "Allow more hosts to join the instance; start their brokers after this")


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-overlay", argv, _TABLE)
    if name == "errors":
        return errors(_ERRORS.parse(rest))
    actions: Dict[str, Callable[[List[str]], int]] = {
        "status": status,
        "lookup": _lookup,
        "parentof": _parentof,
        "disconnect": _disconnect,
        "grow": _grow,
    }
    return actions[name](rest)


def _hosts(handle: Handle) -> List[str]:
    return list(Hostlist.parse(handle.attr_get("hostlist")))


def _lookup(argv: List[str]) -> int:
    (target,) = _LOOKUP.parse(argv).need(1, 1)
    hosts = _hosts(Handle())
    ranks = ranks_of(hosts, target)
    try:
        Idset.parse(target)
    except ValueError:
        print(ranks)
    else:
        print(Hostlist([hosts[rank] for rank in ranks]))
    return 0


def _rank(hosts: List[str], target: str) -> int:
    try:
        (rank,) = ranks_of(hosts, target)
    except (CommandError, ValueError):
        if target.isdigit():
            raise CommandError(f"{target} is not a valid rank in this instance") from None
        raise CommandError(f"TARGET must be a valid rank or hostname, not '{target}'") from None
    return rank


def _parent_of(handle: Handle, rank: int) -> int:
    """The rank of a broker's parent, -1 for the root."""
    todo = [(handle.rpc("overlay.topology", {"rank": 0}, 0).get(), -1)]
    while todo:
        entry, parent = todo.pop()
        if entry["rank"] == rank:
            return int(parent)
        todo += [(child, entry["rank"]) for child in entry["children"]]
    raise CommandError(f"{rank}: no such rank")


def _parentof(argv: List[str]) -> int:
    (target,) = _PARENTOF.parse(argv).need(1, 1)
    handle = Handle()
    parent = _parent_of(handle, _rank(_hosts(handle), target))
    if parent < 0:
        raise CommandError(f"{target} has no parent")
    print(parent)
    return 0


def _disconnect(argv: List[str]) -> int:
    options = _DISCONNECT.parse(argv)
    (target,) = options.need(1, 1)
    handle = Handle()
    hosts = _hosts(handle)
    rank = _rank(hosts, target)
    parent = _rank(hosts, options.get("parent")) if options.has("parent") else _parent_of(handle, rank)
    if parent < 0:
        raise CommandError(f"{target} has no parent")
    sys.stderr.write(
        f"flux-overlay: asking {hosts[parent]} (rank {parent}) to disconnect child {hosts[rank]} (rank {rank})\n"
    )
    handle.rpc("overlay.disconnect-subtree", {"rank": rank}, parent).get()
    return 0


def _grow(argv: List[str]) -> int:
    (hosts,) = _GROW.parse(argv).need(1, 1)
    answer = Handle().rpc("overlay.grow", {"hosts": hosts}, 0).get()
    print(f"{hosts}: rank {answer['ranks']} of {answer['size']}")
    return 0


def ranks_of(hosts: List[str], targets: str) -> Idset:
    """The ranks of an idset or a hostlist. Raises CommandError."""
    try:
        ranks = Idset.parse(targets)
    except ValueError:
        pass
    else:
        if ranks and ranks.last >= len(hosts):
            raise CommandError(f"{targets}: rank is out of range: the instance has ranks 0 to {len(hosts) - 1}")
        return ranks
    try:
        names = list(Hostlist.parse(targets))
    except ValueError as exc:
        raise CommandError(f"{targets}: {exc}") from None
    for name in names:
        if name not in hosts:
            raise CommandError(f"{name}: no such host")
    return Idset([hosts.index(name) for name in names])


_STATUS = Command(
    "flux overlay status",
    "[OPTIONS]",
    "Show the tree of brokers and their health",
    (
        ("r", "rank", "NODEID", "Start at this rank (default: 0)"),
        ("v", "verbose", "[LEVEL]", "Also print how long each has been in its state; twice: also its response time"),
        ("t", "timeout", "FSD", "Maximum wait for the response of a broker (default: 0.5s, 0: no limit)"),
        ("", "summary", "", "Print only the state of the whole tree"),
        ("", "down", "", "Leave out brokers whose whole subtree is healthy"),
        ("", "no-pretty", "", "Print a plain list without tree lines"),
        ("", "no-ghost", "", "Leave out nodes below offline or lost parents"),
        ("L", "color", "[WHEN]", "Color the output: always, never, or auto (on a terminal)"),
        ("H", "highlight", "TARGETS", "Highlight these ranks or hosts, and their ancestors"),
        ("w", "wait", "STATE", "Wait for this state, then print"),
    ),
)
_DEFAULT_TIMEOUT = 0.5
_POLL = 0.05
_STATES = ("full", "partial", "offline", "degraded", "lost")
_UNREACHABLE = ("offline", "lost")
_TINTS = {"lost": "\033[31m", "offline": "\033[33m"}
_GHOST_TINT, _PLAIN = "\033[90m", "\033[39m"
_HIGHLIGHT, _RESET = "\033[01;34m", "\033[0m"


class _Line:
    """A line for a broker. `ghost`: its state is its ancestor's.

    `took`: round trip in ms, 0 if it was not queried.
    """

    __slots__ = ("entry", "ghost", "rank", "stem", "took")

    def __init__(self, rank: int, entry: Dict[str, Any], stem: str, took: float = 0.0, ghost: bool = False) -> None:
        self.rank = rank
        self.entry = entry
        self.stem = stem
        self.took = took
        self.ghost = ghost


class _Tree:
    """Queries brokers for the health of their children, depth first.

    Brokers without children are queried only with `ask_leaves`, to measure their round trip.
    """

    def __init__(self, handle: Handle, timeout: float, ask_leaves: bool = False, ghosts: bool = True) -> None:
        self.handle = handle
        self.timeout = timeout
        self.ask_leaves = ask_leaves
        self.ghosts = ghosts
        self.hosts = list(Hostlist.parse(handle.attr_get("hostlist")))
        self.below: Dict[int, List[int]] = {}
        self._measure(handle.rpc("overlay.topology", {"rank": 0}, 0).get())

    def _measure(self, shape: Dict[str, Any]) -> None:
        self.below[shape["rank"]] = [child["rank"] for child in shape["children"]]
        for child in shape["children"]:
            self._measure(child)

    def subtree(self, rank: int) -> Idset:
        found = Idset([rank])
        for child in self.below[rank]:
            found = found | self.subtree(child)
        return found

    def health(self, rank: int) -> Tuple[Dict[str, Any], float]:
        """A broker's response and the round trip in milliseconds. Raises OSError."""
        start = time.monotonic()
        try:
            answer = self.handle.rpc("overlay.health", nodeid=rank).get(self.timeout or None)
        except TimeoutError:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
        return answer, (time.monotonic() - start) * 1000

    def walk(self, rank: int) -> Iterator[_Line]:
        """The lines of a subtree, parents first. Raises OSError if its root does not respond."""
        answer, took = self.health(rank)
        yield _Line(rank, answer, "", took)
        yield from self._children(answer, "")

    def _children(self, answer: Dict[str, Any], stem: str) -> Iterator[_Line]:
        children = answer.get("children", [])
        for index, child in enumerate(children):
            line, below = _stems(stem, index == len(children) - 1)
            rank = child["rank"]
            if child["status"] in _UNREACHABLE:
                yield _Line(rank, child, line)
                yield from self._ghosts(rank, child["status"], below)
                continue
            if not (self.ask_leaves or self.below.get(rank)):
                yield _Line(rank, child, line)
                continue
            try:
                inner, took = self.health(rank)
            except OSError as exc:
                yield _Line(rank, {**child, "error": exc.strerror}, line)
                yield from self._ghosts(rank, child["status"], below)
                continue
            yield _Line(rank, child, line, took)
            yield from self._children(inner, below)

    def _ghosts(self, rank: int, status: str, stem: str) -> Iterator[_Line]:
        children = self.below.get(rank, []) if self.ghosts else []
        for index, child in enumerate(children):
            line, below = _stems(stem, index == len(children) - 1)
            yield _Line(child, {"status": status}, line, ghost=True)
            yield from self._ghosts(child, status, below)


def _stems(stem: str, last: bool) -> Tuple[str, str]:
    """The prefixes of a child's line, and of the lines of its own children."""
    return (stem + "└─ ", stem + "   ") if last else (stem + "├─ ", stem + "│  ")


def _timeout(options: Options) -> float:
    if not options.has("timeout"):
        return _DEFAULT_TIMEOUT
    try:
        return duration.parse(options.get("timeout"))
    except ValueError as exc:
        raise CommandError(f"invalid timeout: {exc}") from None


def _verbosity(options: Options) -> int:
    """The level of `-v`, `-vv` or `--verbose=LEVEL`. Raises CommandError."""
    level = 0
    for value in options.get_list("verbose"):
        if value.isdigit():
            level = int(value)
        elif value.strip("v"):
            raise CommandError(f"--verbose: invalid level '{value}': it must be a number")
        else:
            level += 1 + len(value)
    return level


def status(argv: List[str]) -> int:
    from headrace.cli.common.eventlog_options import option_wants_color

    options = _STATUS.parse(argv)
    options.need(0, 0)
    verbose = _verbosity(options)
    colored = option_wants_color(options)
    tree = _Tree(Handle(), _timeout(options), verbose > 1, not options.has("no-ghost"))
    marked = ranks_of(tree.hosts, options.get("highlight")) if options.has("highlight") else Idset()
    root = options.get_int("rank", 0)
    if options.has("wait"):
        _wait(tree, root, options.get("wait"), tree.timeout if options.has("timeout") and tree.timeout else None)
    if options.has("summary"):
        entry, took = tree.health(root)
        print(_condition(_Line(root, entry, "", took), verbose, colored))
        return 0
    for line in tree.walk(root):
        if options.has("down") and line.entry["status"] == "full":
            continue
        stem = "" if options.has("no-pretty") else line.stem
        name = f"{line.rank} {tree.hosts[line.rank]}"
        if marked & tree.subtree(line.rank):
            name = f"{_HIGHLIGHT}{name}{_RESET}" if colored else f"<<{name}>>"
        sys.stdout.write(f"{stem}{name}: {_condition(line, verbose, colored)}\n")
    return 0


def _condition(line: _Line, verbose: int, colored: bool) -> str:
    """Format the state of a line: `STATUS [for AGE] [ERROR] [(ROUND TRIP)]`."""
    entry = line.entry
    text = str(entry["status"])
    tint = _GHOST_TINT if line.ghost else _TINTS.get(text, "")
    if colored and tint:
        text = f"{tint}{text}{_PLAIN}"
    if verbose and "duration" in entry:
        text += f" for {_duration(entry['duration'])}"
    if entry.get("error"):
        text += f" {entry['error']}"
    if verbose > 1 and line.took:
        text += f" ({line.took:.3f} ms)"
    return text


def _duration(seconds: float) -> str:
    for limit, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "m")):
        if seconds >= limit:
            return f"{seconds / limit:.6g}{unit}"
    return f"{seconds:.6g}s"


def _wait(tree: _Tree, root: int, wanted: str, limit: Optional[float]) -> None:
    """Wait until the subtree is in the state. Raises CommandError after `limit` seconds (None: no limit)."""
    if wanted not in _STATES:
        raise CommandError(f"invalid --wait state '{wanted}': use {', '.join(_STATES)}")
    end = time.monotonic() + (limit or 0.0)
    while True:
        # A broker that does not respond is not in the wanted state yet.
        with contextlib.suppress(TimeoutError):
            if tree.health(root)[0]["status"] == wanted:
                return
        if limit is not None and time.monotonic() > end:
            raise CommandError(os.strerror(errno.ETIMEDOUT))
        time.sleep(_POLL)


def errors(options: Options) -> int:
    """Print a line for each error that brokers report about their children: the hosts and the error."""
    options.need(0, 0)
    tree = _Tree(Handle(), _timeout(options))
    found: Dict[str, List[str]] = {}
    for line in tree.walk(0):
        text = line.entry.get("error") or ("lost parent" if line.ghost and line.entry["status"] == "lost" else "")
        if text:
            found.setdefault(str(text), []).append(tree.hosts[line.rank])
    for text, names in found.items():
        print(f"{Hostlist(names)}: {text}")
    return 0
