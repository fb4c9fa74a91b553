"""`flux resource list`, `info` and `R`: the scheduler's resources by state and queue."""

from __future__ import annotations

import json

from headrace.cli.common.arguments import queues_named
from headrace.cli.common.errors import CommandError
from headrace.cli.common.named_formats import Formats, layout_of, show
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset import ResourceSet
from headrace.wire.client.handle import Handle
from headrace.wire.query.resource_sets import STATES, Given, SchedulerResources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List, Tuple


_START = "{state:>10} ?+:{queue:<5} ?:{propertiesx:<10.10+} {nnodes:>6} {ncores:>6} "
FORMATS = {
    "default": _START + "?:{ngpus:>5} {nodelist}",
    "rlist": _START + "+{ngpus:>5} {rlist}",
}
_PURPOSES = {
    "default": "Default flux-resource list format string",
    "rlist": "Format including resource list details",
}
_HEADINGS = {
    "state": "STATE",
    "queue": "QUEUE",
    "properties": "PROPERTIES",
    "propertiesx": "PROPERTIES",
    "nnodes": "NNODES",
    "ncores": "NCORES",
    "ngpus": "NGPUS",
    "ranks": "RANKS",
    "nodelist": "NODELIST",
    "rlist": "LIST",
}


class _Line:
    """One line: the resources of a queue in a state."""

    def __init__(self, state: str, queue: str, found: ResourceSet, queues: List[str]) -> None:
        self.state = state
        self.queue = queue
        self.found = found
        self.queues = queues

    def get(self, field: str) -> Any:
        if field == "state":
            return self.state
        if field == "queue":
            return self.queue
        if field == "rlist":
            return self.found.short_form()
        if field in ("properties", "propertiesx"):
            names = sorted(self.found.properties)
            return ",".join(name for name in names if field == "properties" or name not in self.queues)
        return getattr(self.found, field) if field != "ranks" else str(self.found.ranks)


def _resources(args: Namespace) -> SchedulerResources:
    if args.from_stdin:
        return SchedulerResources(given_on_stdin())
    handle = Handle()
    config = handle.rpc("config.get")
    resources = SchedulerResources(handle.rpc("resource.sched-status", nodeid=0))
    resources.configure(config.get())
    return resources


def _states(text: Any, default: List[str]) -> List[str]:
    states = text.split(",") if text else default
    for state in states:
        if state not in STATES:
            raise CommandError(f"Invalid resource state {state} specified: valid states are {', '.join(STATES)}")
    return list(states)


def _wanted_queues(args: Namespace, resources: SchedulerResources) -> List[str]:
    return queues_named(args.queue, resources.queues) if args.queue else resources.queues


def list_resources(args: Namespace) -> int:
    layout = layout_of(
        args.format, Formats("flux-resource", FORMATS, _PURPOSES, "list", ("list", "status", "drain")), _HEADINGS
    )
    if layout is None:
        return 0
    resources = _resources(args)
    lines = []
    by_queue = "queue" in layout.names
    for state in _states(args.states, ["free", "allocated", "down"]):
        queues = _wanted_queues(args, resources) if by_queue or args.queue else []
        for queue in queues or [""]:
            found = resources.in_queue(state, queue)
            if args.include:
                found = included(found, args.include)
            if found or args.no_skip_empty or not (args.include or args.skip_empty):
                parts = [found]
                if {"properties", "propertiesx"} & set(layout.names):
                    parts = _by_properties(found, [] if "properties" in layout.names else resources.queues)
                lines += [_Line(state, queue, part, resources.queues) for part in parts]
    show(layout, [line.get for line in lines], args.no_header)
    return 0


def _by_properties(found: ResourceSet, unseen: List[str]) -> List[ResourceSet]:
    """Split a set by the combinations of its nodes' properties; properties in `unseen` are ignored."""
    combinations: Dict[Tuple[str, ...], Idset] = {}
    shown = [name for name in sorted(found.properties) if name not in unseen]
    for rank in found.ranks:
        names = tuple(name for name in shown if rank in found.properties[name])
        combinations[names] = combinations.get(names, Idset()) | Idset([rank])
    if len(combinations) < 2:
        return [found]
    return [found.select_ranks(ranks) for ranks in combinations.values()]


def _merged(args: Namespace) -> ResourceSet:
    resources = _resources(args)
    merged = ResourceSet()
    for state in _states(args.states, ["all"]):
        for queue in (_wanted_queues(args, resources) if args.queue else []) or [""]:
            merged = merged.union(resources.in_queue(state, queue))
    return included(merged, args.include) if args.include else merged


def info(args: Namespace) -> int:
    found = _merged(args)
    print(f"{found.nnodes} Nodes, {found.ncores} Cores, {found.ngpus} GPUs")
    return 0


def R(args: Namespace) -> int:
    print(json.dumps(_merged(args).to_obj()))
    return 0


def given_on_stdin() -> Given:
    """The answer of the resource module, read from standard input as JSON; empty input is {}.

    Raises CommandError.
    """
    import json
    import sys

    text = sys.stdin.read()
    try:
        answer = json.loads(text) if text.strip() else {}
    except ValueError as exc:
        raise CommandError(f"standard input is not JSON: {exc}") from None
    if not isinstance(answer, dict):
        raise CommandError("standard input must be a JSON object")
    return Given(answer)


def included(found: ResourceSet, text: str) -> ResourceSet:
    """The part of a set on the nodes of `--include` (ranks or hosts). Raises CommandError."""
    try:
        return found.select_ranks(Idset.parse(text))
    except ValueError:
        pass
    try:
        return found.select_hosts(Hostlist.parse(text))
    except ValueError:
        raise CommandError(f"--include: invalid targets: {text}") from None
