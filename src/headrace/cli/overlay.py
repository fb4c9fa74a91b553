"""`flux overlay`: the tree of brokers and its health."""

from __future__ import annotations

import sys
import time

from headrace.cli.errors import CommandError
from headrace.cli.getopts import Command, dispatch
from headrace.client.handle import Handle
from headrace.spec.hostlist import Hostlist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Tuple

PREFIX = "flux-overlay: "

_TABLE = {
    "status": ("Display overlay subtree health status", None),
    "errors": ("Summarize overlay errors", None),
    "lookup": ("translate rank to hostname or hostname to rank", None),
    "parentof": ("show the parent of RANK", None),
    "disconnect": ("disconnect a subtree rooted at RANK", None),
}
_STATUS = Command(
    "flux overlay status",
    "[OPTIONS]",
    "Display overlay subtree health status",
    (
        ("r", "rank", "NODEID", "Check health of subtree rooted at NODEID (default 0)"),
        ("v", "verbose", "", "Increase reporting detail: 1=show time since current state was entered, 2=show RPC time"),
        ("t", "timeout", "FSD", "Set RPC timeout, 0=disable (default 0.5s)"),
        ("", "summary", "", "Show only the root subtree status."),
        ("", "down", "", "Show only the partial/degraded subtrees."),
        ("", "no-pretty", "", "Do not indent entries and use line drawing characters"),
        (
            "",
            "no-ghost",
            "",
            "Leave out nodes behind offline or lost parents",
        ),
        ("L", "color", "[WHEN]", "Colorize output when supported"),
        ("H", "highlight", "TARGETS", "Highlight one or more TARGETS and their ancestors"),
        ("w", "wait", "STATE", "Wait until subtree enters STATE before reporting (full, partial, degraded)"),
    ),
)
_ERRORS = Command("flux overlay errors", "[OPTIONS]", "Summarize overlay errors")
_LOOKUP = Command("flux overlay lookup", "TARGET", "translate rank to hostname or hostname to rank")
_PARENTOF = Command("flux overlay parentof", "RANK", "show the parent of RANK")
_DISCONNECT = Command("flux overlay disconnect", "[OPTIONS] TARGET", "disconnect a subtree rooted at TARGET")
_DEFAULT_TIMEOUT = 0.5


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-overlay", argv, _TABLE)
    actions: Dict[str, Callable[[List[str]], int]] = {
        "status": _status,
        "errors": _errors,
        "lookup": _lookup,
        "parentof": _parentof,
        "disconnect": _disconnect,
    }
    return actions[name](rest)


class _Tree:
    """Asks brokers for the health of their children, level by level; a leaf only when its round trip is wanted."""

    def __init__(self, handle: Handle, timeout: float, ask_leaves: bool = False) -> None:
        self.handle = handle
        self.timeout = timeout
        self.ask_leaves = ask_leaves
        self.size = int(handle.attr_get("size"))
        self.hosts: List[str] = []
        self._sizes: Dict[int, int] = {}

    def health(self, rank: int) -> Tuple[Dict[str, Any], float]:
        """A broker's answer and the round trip in milliseconds. Raises OSError."""
        start = time.monotonic()
        answer = self.handle.rpc("overlay.health", nodeid=rank).get(self.timeout or None)
        return answer, (time.monotonic() - start) * 1000

    def walk(self, rank: int) -> Iterator[Tuple[int, Dict[str, Any], float, str]]:
        """(rank, entry, round trip, stem of the line) for the subtree, parents first."""
        answer, took = self.health(rank)
        self._measure(self.handle.rpc("overlay.topology", {"rank": rank}, 0).get())
        self.hosts = list(Hostlist.parse(self.handle.attr_get("hostlist")))
        yield rank, answer, took, ""
        yield from self._below(answer, "")

    def _measure(self, shape: Dict[str, Any]) -> None:
        self._sizes[shape["rank"]] = shape["size"]
        for child in shape["children"]:
            self._measure(child)

    def _below(self, answer: Dict[str, Any], stem: str) -> Iterator[Tuple[int, Dict[str, Any], float, str]]:
        children = answer.get("children", [])
        for index, child in enumerate(children):
            last = index == len(children) - 1
            line, below = (stem + "└─ ", stem + "   ") if last else (stem + "├─ ", stem + "│  ")
            rank = child["rank"]
            asked = self.ask_leaves or self._sizes.get(rank, 1) > 1
            if child["status"] in ("offline", "lost") or not asked:
                yield rank, child, 0.0, line
                continue
            try:
                inner, took = self.health(rank)
            except OSError as exc:
                yield rank, {**child, "error": exc.strerror}, 0.0, line
                continue
            yield rank, child, took, line
            yield from self._below(inner, below)


def _status(argv: List[str]) -> int:
    options = _STATUS.parse(argv)
    options.need(0, 0)
    timeout = _DEFAULT_TIMEOUT
    if options.has("timeout"):
        from headrace.spec import duration

        timeout = duration.parse(options.get("timeout"))
    tree = _Tree(Handle(), timeout, options.count("verbose") > 1)
    root = options.get_int("rank", 0)
    if options.has("wait"):
        _wait(tree, root, options.get("wait"))
    if options.has("summary"):
        print(tree.health(root)[0]["status"])
        return 0
    for rank, entry, took, line in tree.walk(root):
        if options.has("down") and entry["status"] == "full":
            continue
        stem = "" if options.has("no-pretty") else line
        sys.stdout.write(f"{stem}{_describe(rank, tree.hosts, entry, took, options.count('verbose'))}\n")
    return 0


def _describe(rank: int, hosts: List[str], entry: Dict[str, Any], took: float, verbose: int) -> str:
    text = f"{rank} {hosts[rank] if rank < len(hosts) else '?'}: {entry['status']}"
    if entry.get("error"):
        text += f" {entry['error']}"
    if verbose:
        text += f" for {_duration(entry.get('duration', 0.0))}"
    if verbose > 1 and took:
        text += f" ({took:.3f} ms)"
    return text


def _duration(seconds: float) -> str:
    for limit, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "m")):
        if seconds >= limit:
            return f"{seconds / limit:.6g}{unit}"
    return f"{seconds:.6g}s"


def _wait(tree: _Tree, root: int, wanted: str) -> None:
    order = ("offline", "lost", "degraded", "partial", "full")
    if wanted not in order:
        raise CommandError(f"invalid --wait state '{wanted}': use full, partial or degraded")
    while tree.health(root)[0]["status"] != wanted:
        time.sleep(0.05)


def _errors(argv: List[str]) -> int:
    _ERRORS.parse(argv).need(0, 0)
    tree = _Tree(Handle(), _DEFAULT_TIMEOUT)
    found: Dict[str, List[str]] = {}
    for rank, entry, _, _ in tree.walk(0):
        if entry.get("error"):
            found.setdefault(str(entry["error"]), []).append(tree.hosts[rank])
    for text, names in found.items():
        print(f"{Hostlist.parse(','.join(names))}: {text}")
    return 0


def _lookup(argv: List[str]) -> int:
    (target,) = _LOOKUP.parse(argv).need(1, 1)
    hosts = list(Hostlist.parse(Handle().attr_get("hostlist")))
    if target.isdigit():
        if int(target) >= len(hosts):
            raise CommandError(f"{target}: rank is out of range: the instance has ranks 0 to {len(hosts) - 1}")
        print(hosts[int(target)])
        return 0
    ranks = [str(rank) for rank, host in enumerate(hosts) if host == target]
    if not ranks:
        raise CommandError(f"{target}: no such host")
    print(ranks[0])
    return 0


def _rank(handle: Handle, target: str) -> int:
    hosts = list(Hostlist.parse(handle.attr_get("hostlist")))
    if target.isdigit() and int(target) < len(hosts):
        return int(target)
    if target in hosts:
        return hosts.index(target)
    raise CommandError(f"TARGET must be a valid rank or hostname, not '{target}'")


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
    parent = _parent_of(handle, _rank(handle, target))
    if parent < 0:
        raise CommandError(f"{target} has no parent")
    print(parent)
    return 0


def _disconnect(argv: List[str]) -> int:
    (target,) = _DISCONNECT.parse(argv).need(1, 1)
    handle = Handle()
    rank = _rank(handle, target)
    parent = _parent_of(handle, rank)
    sys.stderr.write(f"flux-overlay: asking rank {parent} to disconnect child rank {rank}\n")
    handle.rpc("overlay.disconnect-subtree", {"rank": rank}, parent).get()
    return 0
