"""`flux resource status` and `drain` without targets: states of nodes, reasons of drains."""

from __future__ import annotations

from functools import partial

from headrace.cli.common.arguments import queues_named
from headrace.cli.common.errors import CommandError
from headrace.cli.common.named_formats import Formats, layout_of, show
from headrace.cli.resource.list import given_on_stdin, included
from headrace.formats.spec.constraint import of_queue
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset import ResourceSet
from headrace.wire.client.handle import Handle
from headrace.wire.query.color import stdout_colored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List, Tuple

    from headrace.wire.query.format import Format

_STATUS_FORMATS = {
    "default": "{state:>12}{color_up}{up:>2}{color_off} {nnodes:>6} {nodelist}",
    "long": "{state:>12}{color_up}{up:>2}{color_off} {nnodes:>6} +:{ranks:<5} {nodelist} ?:{reason:<25.25+}",
}
_STATUS_PURPOSES = {
    "default": "Default flux-resource status format string",
    "long": "Long flux-resource status format string",
}
_DRAIN_FORMATS = {
    "default": "{timestamp!d:%b%d %R::<12} {state:<8.8} {reason:<30.30+} {nodelist}",
    "long": "{timestamp!d:%b%d %R::<12} {state:<8.8} {ranks:<8.8+} {reason:<30.30+} {nodelist}",
}
_DRAIN_PURPOSES = {
    "default": "Default flux-resource drain format string",
    "long": "Long flux-resource drain format string",
}
_HEADINGS = {
    "state": "STATE",
    "statex": "STATE",
    "up": "UP",
    "up.ascii": "UP",
    "status": "STATUS",
    "nnodes": "NNODES",
    "ranks": "RANKS",
    "nodelist": "NODELIST",
    "reason": "REASON",
    "timestamp": "TIME",
    "color_up": "",
    "color_off": "",
}
# States that are shown only if `--states` names them.
_ASKED_FOR = ("allocated",)
_STATES = ("avail", "exclude", "torpid", "housekeeping", "draining", "drained")
# States that are shown by default even if no node is in them.
_ALWAYS = ("avail",)
_GREEN, _RED, _OFF = "\033[01;32m", "\033[01;31m", "\033[0;0m"


class _Nodes:
    """The resource module's status of nodes, and the nodes that are allocated or in housekeeping."""

    def __init__(self, status: Dict[str, Any], allocated: Any, housekeeping: Idset) -> None:
        self.status = status
        self.R = ResourceSet.from_obj(status["R"]) if status.get("R") else ResourceSet()
        self.ranks = self.R.ranks
        self.online = Idset.parse(status.get("online", ""))
        self.exclude = Idset.parse(status.get("exclude", ""))
        self.torpid = Idset.parse(status.get("torpid", ""))
        self.housekeeping = housekeeping
        self.allocated = ResourceSet.from_obj(allocated).ranks if allocated else Idset([])
        self.drains: List[Tuple[Idset, float, str]] = [
            (Idset.parse(ids), float(entry["timestamp"]), str(entry.get("reason") or ""))
            for ids, entry in status.get("drain", {}).items()
        ]
        self.drain = Idset([])
        for ids, _, _ in self.drains:
            self.drain = self.drain | ids

    def in_state(self, state: str) -> Idset:
        busy = self.allocated | self.housekeeping
        return {
            "avail": self.ranks - self.exclude - self.drain,
            "allocated": self.allocated,
            "exclude": self.exclude,
            "torpid": self.torpid,
            "housekeeping": self.housekeeping,
            "draining": self.drain & busy,
            "drained": self.drain - busy,
        }[state]

    def nodelist(self, ranks: Idset) -> str:
        return ResourceSet.select_ranks(self.R, ranks).nodelist


def _ask(handle: Handle) -> _Nodes:
    calls = [handle.rpc(f"resource.{name}", nodeid=0) for name in ("status", "sched-status")]
    stats = handle.rpc("job-manager.stats-get", nodeid=0).get()
    housekeeping = Idset([])
    for entry in stats.get("housekeeping", {}).get("running", {}).values():
        housekeeping = housekeeping | Idset.parse(entry["pending"])
    status, sched = [call.get() for call in calls]
    return _Nodes(status, sched["allocated"], housekeeping)


# Equal values for the fields that list nodes, so that lines that differ only in their nodes compare as equal.
_NODE_FIELDS = {"nnodes": 1, "nodelist": "-", "ranks": "-"}


class _Line:
    """Nodes of one state that are all up, or all down."""

    def __init__(self, nodes: _Nodes, state: str, ranks: Idset, up: bool, reason: str, when: float, tint: bool) -> None:
        self.nodes = nodes
        self.state = state
        self.ranks = ranks
        self.up = up
        self.reason = reason
        self.when = when
        self.tint = tint

    def get(self, field: str) -> Any:
        if field in ("up", "up.ascii"):
            return ("✔" if self.up else "✗") if field == "up" else "y" if self.up else "n"
        if field == "nnodes":
            return len(self.ranks)
        if field == "nodelist":
            return self.nodes.nodelist(self.ranks)
        if field == "color_up":
            return (_GREEN if self.up else _RED) if self.tint else ""
        if field == "color_off":
            return _OFF if self.tint else ""
        return {
            "state": self.state,
            "statex": self.state if self.up else self.state + "*",
            "status": "online" if self.up else "offline",
            "ranks": str(self.ranks),
            "reason": self.reason,
            "timestamp": self.when,
        }[field]


def _chosen(nodes: _Nodes, args: Namespace) -> Idset:
    """The ranks selected by `--include` and `--queue`."""
    chosen = included(nodes.R, args.include).ranks if args.include else nodes.ranks
    return chosen & _queue_ranks(nodes, args.queue) if args.queue else chosen


def status(args: Namespace) -> int:
    layout = layout_of(
        args.format,
        Formats("flux-resource", _STATUS_FORMATS, _STATUS_PURPOSES, "status", ("list", "status", "drain")),
        _HEADINGS,
    )
    if layout is None:
        return 0
    states, ups = _asked(args.states)
    if args.from_stdin:
        given = given_on_stdin().get()
        nodes = _Nodes(given, given.get("allocated"), Idset([]))
    else:
        nodes = _ask(Handle())
    chosen = _chosen(nodes, args)
    tint = stdout_colored(args.color)
    lines = []
    for state in states:
        for up in ups:
            ranks = nodes.in_state(state) & chosen
            ranks = ranks & nodes.online if up else ranks - nodes.online
            # A state without nodes has a line if `--states` names it, or always if it is in _ALWAYS. If up and down
            # nodes are both shown, it has only the line for up nodes.
            shown = bool(args.states) and not args.skip_empty and (up or len(ups) == 1)
            if ranks or (nodes.ranks and (shown or (up and state in _ALWAYS and not args.skip_empty))):
                reasons = {text for ids, _, text in nodes.drains if ids & ranks}
                lines.append(_Line(nodes, state, ranks, up, ",".join(sorted(reasons)), 0.0, tint))
    show(layout, [line.get for line in _joined(layout, lines)], args.no_header)
    return 0


def _apart_from_nodes(line: _Line, field: str) -> Any:
    return _NODE_FIELDS.get(field) or line.get(field)


def _joined(layout: Format, lines: List[_Line]) -> List[_Line]:
    """Join lines that differ only in their nodes."""
    out: Dict[str, _Line] = {}
    for line in lines:
        key = layout.row(partial(_apart_from_nodes, line))
        if key in out:
            out[key].ranks = out[key].ranks | line.ranks
        else:
            out[key] = line
    return list(out.values())


def _asked(text: Any) -> Tuple[List[str], List[bool]]:
    """Parse `--states` into the states to show, and whether to show lines for up nodes, down nodes or both.

    The words `online` and `offline` choose up or down nodes, in all states.
    """
    states: List[str] = []
    ups: List[bool] = []
    for name in text.split(",") if text else []:
        if name in ("online", "offline"):
            ups.append(name == "online")
        elif name == "all":
            states += _STATES
        elif name == "drain":
            states += ["draining", "drained"]
        elif name in _STATES or name in _ASKED_FOR:
            states.append(name)
        else:
            valid = ", ".join((*_STATES, *_ASKED_FOR, "drain", "online", "offline", "all"))
            raise CommandError(f"Invalid resource state {name} specified: valid states are {valid}")
    return states or list(_STATES), ups or [True, False]


def _queue_ranks(nodes: _Nodes, texts: List[str]) -> Idset:
    queues = Handle().rpc("config.get").get().get("queues", {})
    ranks = Idset([])
    for name in queues_named(texts, queues):
        constraint = of_queue(queues[name])
        found = nodes.R.matching_ranks(constraint) if constraint else nodes.ranks
        ranks = ranks | found
    return ranks


def drained(args: Namespace) -> int:
    """List drained nodes, one line for each time and reason."""
    layout = layout_of(
        args.format,
        Formats("flux-resource", _DRAIN_FORMATS, _DRAIN_PURPOSES, "drain", ("list", "status", "drain")),
        _HEADINGS,
    )
    if layout is None:
        return 0
    nodes = _ask(Handle())
    chosen = _chosen(nodes, args)
    lines = []
    for ids, when, reason in nodes.drains:
        for state in ("draining", "drained"):
            ranks = ids & nodes.in_state(state) & chosen
            if ranks:
                lines.append(_Line(nodes, state, ranks, True, reason, when, False))
    show(layout, [line.get for line in _joined(layout, lines)], args.no_header)
    return 0
