"""The commands of `headrace fluxqueue` that query the API server with the user's own rights.

They are `list`, `why NAME`, `nodes`, `graph`, `hold NAME` and `release NAME`.
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

    from headrace.cli.common.arguments import Parser
    from headrace.cluster_queue.client import Line, NodeLine
    from headrace.k8s.runtime.api import Api


def add_to(parser: Parser) -> None:
    """Add the options that choose a cluster and a namespace in it, and `--json`."""
    add_cluster(parser)
    parser.add_argument("--json", action="store_true", help="Print JSON")


def _name_arguments(parser: Parser) -> None:
    add_to(parser)
    parser.add_argument("name", metavar="NAME", help="Name of the Job, pod or other object, or KIND/NAME")


def asked(options: Namespace, act: Callable[[Namespace, Api, str], Awaitable[None]]) -> int:
    """Run `act(options, api, namespace)` with a connection to the chosen cluster. Raises CommandError."""

    async def run(api: Api, namespace: str) -> int:
        from headrace.cluster_queue.client import NoSuchJob
        from headrace.k8s.runtime.api import ApiError

        try:
            await act(options, api, namespace)
        except NoSuchJob as exc:
            raise CommandError(str(exc)) from None
        except ApiError as exc:
            # A missing object has a reason ("NotFound"). A missing resource type, as without the queue, has none.
            if exc.status != 404 or exc.reason:
                raise
            how = "headrace fluxqueue manifests | kubectl apply --server-side -f -"
            raise CommandError(f"the queue is not installed in this cluster ({exc.message}): {how}") from None
        return 0

    return connected(options, run)


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows as a table; each column is as wide as its longest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def say(text: str) -> None:
    """Write a line that is not part of a table to standard error."""
    sys.stderr.write(f"{text}\n")


def summary(line: Line) -> Dict[str, Any]:
    """A job for `--json`."""
    meta, spec = line.job["metadata"], line.job["spec"]
    names = {"name": spec.get("name"), "namespace": meta["namespace"], "fluxjob": meta["name"]}
    place = {"position": line.position or None, "exact": line.is_exact}
    return {**names, "queue": spec.get("queue"), **place, "spec": spec, "status": line.job.get("status") or {}}


_JOB_HEADS = ("NAME", "KIND", "STATE", "QUEUE", "POSITION", "PODS", "ESTIMATE", "REASON")


def _list_arguments(parser: Parser) -> None:
    add_to(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="List the jobs of all namespaces")
    parser.add_argument("-a", "--all", action="store_true", help="Include jobs that have ended")


async def _list(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.cluster_queue import client

    found = await client.listed(api, namespace, options.all_namespaces, options.all)
    if options.json:
        print_json({"jobs": [summary(line) for line in found.lines], "unread": dict(found.unread)})
        return
    rows = [(("NAMESPACE",) if options.all_namespaces else ()) + _JOB_HEADS]
    for line in found.lines:
        meta, spec, status = line.job["metadata"], line.job["spec"], line.job.get("status") or {}
        position = f"{'' if line.is_exact else '~'}{line.position}" if line.position else ""
        cells = [meta["namespace"]] if options.all_namespaces else []
        cells += [str(spec.get("name", "")), meta["name"].rpartition("-")[2], status.get("state", "Held")]
        cells += [str(spec.get("queue", "")), position, str(spec.get("nodes", ""))]
        rows.append((*cells, status.get("estimatedStart", ""), status.get("reason", "")))
    print_table(rows)
    for queue, count in found.unread.items():
        if count:
            say(f"{count} job{'' if count == 1 else 's'} that you may not read {'is' if count == 1 else 'are'} "
                 f"before the last of these in queue {queue}")  # fmt: skip


async def _why(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.cluster_queue import client

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
        print_json({**summary(line), "events": events})
        return
    spec, status = line.job["spec"], line.job.get("status") or {}
    place = f", position {'' if line.is_exact else '~'}{line.position}" if line.position else ""
    duration = f"{spec['duration']} s" if spec.get("duration") else "not known"
    facts = {
        "state": status.get("state", "Held"),
        "queue": f"{spec.get('queue')}{place}",
        "reason": status.get("reason"),
        "estimate": status.get("estimatedStart"),
        "pods": str(spec.get("nodes", "")),
        "duration": duration,
        "queued": status.get("queuedAt"),
        "started": status.get("startedAt"),
        "ended": status.get("endedAt"),
        "nodes": client.nodes_of(line.job),
        "jobid": status.get("jobid"),
    }
    print_table([(name, value) for name, value in facts.items() if value])
    for one in events:
        print(f"{one['time']}  {one['reason']}: {one['message']}")


_NODE_HEADS = ("NODE", "QUEUE", "STATE", "CPU", "MEMORY", "PODS", "GPU", "JOBS")


def _amount(line: NodeLine, kind: str) -> str:
    if kind not in line.has:
        return ""
    return f"{line.has[kind]}" if line.free is None else f"{line.free[kind]}/{line.has[kind]}"


async def _nodes(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.cluster_queue import client

    found = await client.nodes_seen(api, namespace)
    for name, problem in found.problems.items():
        say(f"FluxQueue {name} is Invalid and has no nodes: {problem}")
    if options.json:
        print_json(
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
    print_table(rows)
    free = "free/total" if found.reads_pods else "total (free is not known: you may not read all pods)"
    say(f"{free}; cpu in thousandths of a core, memory in MiB")


def _graph_arguments(parser: Parser) -> None:
    add_to(parser)
    parser.add_argument("--queue", default="default", metavar="NAME", help="The FluxQueue (default: default)")
    parser.add_argument("--jgf", action="store_true", help="Print the graph in the JSON Graph Format")


async def _graph(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.cluster_queue import client
    from headrace.sched.graph.formats import export

    found = await client.nodes_seen(api, namespace)
    if options.queue in found.problems:
        raise CommandError(f"FluxQueue {options.queue} is Invalid: {found.problems[options.queue]}")
    if options.queue not in found.queues:
        raise CommandError(f"no FluxQueue {options.queue} (known: {', '.join(found.queues) or 'none'})")
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


async def _put_on_hold(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.cluster_queue import client

    is_on_hold = options.action == "hold"
    line = await client.found(api, namespace, options.name)
    await client.put_on_hold(api, line.job, is_on_hold)
    if options.json:
        print_json({"name": line.job["spec"].get("name"), "namespace": namespace, "hold": is_on_hold})
    elif is_on_hold:
        print(f"{options.name} is on hold: it does not start until it is released")
    else:
        print(f"{options.name} is released: it is back in its place in the queue")


# For each command, the function that adds its arguments and the function that runs it with a connection.
_COMMANDS = {
    "list": (_list_arguments, _list),
    "why": (_name_arguments, _why),
    "nodes": (add_to, _nodes),
    "graph": (_graph_arguments, _graph),
    "hold": (_name_arguments, _put_on_hold),
    "release": (_name_arguments, _put_on_hold),
}


def add_arguments(parser: Parser, name: str) -> None:
    _COMMANDS[name][0](parser)


def main(options: Namespace) -> int:
    return asked(options, _COMMANDS[options.action][1])
