"""`headrace fluxqueue list|why|nodes|graph|hold|release`, which kubectl runs as `kubectl fluxqueue`: a user's view of
the cluster queue, through the API server and with the user's own rights.
"""

from __future__ import annotations

import json
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.mini.kube import add_cluster, connected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Awaitable, Callable, Dict, List, Sequence

    from headrace.fluxqueue.client import Line, NodeLine
    from headrace.kube.runtime.api import Api

_HEADS = ("NAME", "KIND", "STATE", "QUEUE", "POSITION", "PODS", "ESTIMATE", "REASON")
_NODE_HEADS = ("NODE", "QUEUE", "STATE", "CPU", "MEMORY", "PODS", "GPU", "JOBS")
_NAME = "Name of the Job, pod or other object, or KIND/NAME"


def add_to(commands: Any, program: str) -> None:
    """Add the commands to those of `program`."""

    def add(name: str, text: str) -> Any:
        one = commands.add_parser(name, prog=f"{program} {name}", help=text, description=text)
        add_cluster(one)
        one.add_argument("--json", action="store_true", help="Print JSON")
        return one

    lists = add("list", "List what waits and runs, each queue in its order")
    lists.add_argument("-A", "--all-namespaces", action="store_true", help="The jobs of all namespaces")
    lists.add_argument("-a", "--all", action="store_true", help="Those that have ended, too")
    add("why", "Tell why a job waits, and what is known of its start").add_argument("name", metavar="NAME", help=_NAME)
    add("nodes", "List the nodes of the queues with what is free of them")
    graph = add("graph", "Print the graph that a queue plans with")
    graph.add_argument("--queue", default="default", metavar="NAME", help="The FluxQueue (default: default)")
    graph.add_argument("--jgf", action="store_true", help="Print it in the JSON Graph Format")
    for name, text in (
        ("hold", "Keep a job that waits out of the order"),
        ("release", "Put a job that is on hold back into its place"),
    ):
        add(name, text).add_argument("name", metavar="NAME", help=_NAME)


def main(options: Namespace) -> int:
    act = ACTIONS[options.action]

    async def run(api: Api, namespace: str) -> int:
        from headrace.fluxqueue.client import NoSuchJob

        try:
            await act(options, api, namespace)
        except NoSuchJob as exc:
            raise CommandError(str(exc)) from None
        return 0

    return connected(options, run)


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def _table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _summary(line: Line) -> Dict[str, Any]:
    meta, spec = line.job["metadata"], line.job["spec"]
    names = {"name": spec.get("name"), "namespace": meta["namespace"], "fluxjob": meta["name"]}
    place = {"position": line.position or None, "exact": line.is_exact}
    return {**names, "queue": spec.get("queue"), **place, "spec": spec, "status": line.job.get("status") or {}}


async def _list(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.fluxqueue import client

    found = await client.listed(api, namespace, options.all_namespaces, options.all)
    if options.json:
        _print_json({"jobs": [_summary(line) for line in found.lines], "unread": dict(found.unread)})
        return
    rows = [(("NAMESPACE",) if options.all_namespaces else ()) + _HEADS]
    for line in found.lines:
        meta, spec, status = line.job["metadata"], line.job["spec"], line.job.get("status") or {}
        position = f"{'' if line.is_exact else '~'}{line.position}" if line.position else ""
        cells = [meta["namespace"]] if options.all_namespaces else []
        cells += [str(spec.get("name", "")), meta["name"].rpartition("-")[2], status.get("state", "Held")]
        cells += [str(spec.get("queue", "")), position, str(spec.get("nodes", ""))]
        rows.append((*cells, status.get("estimatedStart", ""), status.get("reason", "")))
    _table(rows)
    for queue, count in found.unread.items():
        if count:
            _say(f"{count} job{'' if count == 1 else 's'} that you may not read {'is' if count == 1 else 'are'} "
                 f"before the last of these in queue {queue}")  # fmt: skip


async def _why(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.fluxqueue import client

    line = await client.found(api, namespace, options.name)
    events = [
        {
            "time": one.get("lastTimestamp") or one.get("eventTime"),
            "reason": one.get("reason"),
            "message": one["message"],
        }
        for one in await client.events_of(api, line.job)
    ]
    if options.json:
        _print_json({**_summary(line), "events": events})
        return
    spec, status = line.job["spec"], line.job.get("status") or {}
    place = f", position {'' if line.is_exact else '~'}{line.position}" if line.position else ""
    duration = f"{spec['duration']} s" if spec.get("duration") else "not known"
    told = {
        "state": status.get("state", "Held"),
        "queue": f"{spec.get('queue')}{place}",
        "reason": status.get("reason"),
        "estimate": status.get("estimatedStart"),
        "pods": str(spec.get("nodes", "")),
        "duration": duration,
        "queued": status.get("queuedAt"),
        "started": status.get("startedAt"),
        "ended": status.get("endedAt"),
        "nodes": status.get("nodes"),
        "jobid": status.get("jobid"),
    }
    _table([(name, value) for name, value in told.items() if value])
    for one in events:
        print(f"{one['time']}  {one['reason']}: {one['message']}")


def _amount(line: NodeLine, kind: str) -> str:
    if kind not in line.has:
        return ""
    return f"{line.has[kind]}" if line.free is None else f"{line.free[kind]}/{line.has[kind]}"


async def _nodes(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.fluxqueue import client

    found = await client.nodes_seen(api, namespace)
    if options.json:
        _print_json(
            [
                {
                    **{"name": line.name, "queue": line.queue, "usable": line.is_usable, "has": dict(line.has)},
                    **{"free": None if line.free is None else dict(line.free), "jobs": list(line.jobs)},
                }
                for line in found.lines
            ]
        )
        return
    rows: List[Sequence[str]] = [_NODE_HEADS]
    for line in found.lines:
        amounts = [_amount(line, kind) for kind in ("cpu", "memory", "pod", "gpu")]
        state = "usable" if line.is_usable else "not usable"
        rows.append((line.name, line.queue, state, *amounts, ",".join(line.jobs)))
    _table(rows)
    free = "free of what there is" if found.reads_pods else "what there is (you may not read all pods)"
    _say(f"cpu in thousandths of a core, memory in MiB: {free}")


async def _graph(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.fluxqueue import client
    from headrace.graph.formats import export

    found = await client.nodes_seen(api, namespace)
    if options.queue not in found.queues:
        raise CommandError(f"there is no FluxQueue {options.queue}; there are {', '.join(found.queues) or 'none'}")
    graph = found.graph(options.queue)
    if options.jgf or options.json:
        sys.stdout.write(export.jgf(graph))
        return
    depths = {graph.root: 0}
    for v in graph.preorder(graph.root):
        depths[v] = depths.get(graph.parent[v], -1) + 1
        size = f" {graph.size[v]}{graph.unit.get(v, '')}" if not graph.children[v] else ""
        down = "" if graph.up[v] else " (not usable)"
        print(f"{'  ' * depths[v]}{graph.type[v]} {graph.name(v)}{size}{down}")


async def _hold(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.fluxqueue import client

    line = await client.found(api, namespace, options.name)
    is_on_hold = options.action == "hold"
    await client.put_on_hold(api, line.job, is_on_hold)
    if options.json:
        _print_json({"name": line.job["spec"].get("name"), "namespace": namespace, "hold": is_on_hold})
    elif is_on_hold:
        print(f"{options.name} is on hold: it waits outside the order")
    else:
        print(f"{options.name} is released: back in its place")


ACTIONS: Dict[str, Callable[[Namespace, Api, str], Awaitable[None]]] = {
    "list": _list,
    "why": _why,
    "nodes": _nodes,
    "graph": _graph,
    "hold": _hold,
    "release": _hold,
}
