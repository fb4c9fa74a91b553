"""`headrace fluxqueue nodes`: the nodes of the queues, with what is free of them."""

from __future__ import annotations

from headrace.cli.fluxqueue import cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import List, Sequence

    from headrace.cli.common.arguments import Parser
    from headrace.cluster_queue.client import NodeLine
    from headrace.k8s.runtime.api import Api


_HEADS = ("NODE", "QUEUE", "STATE", "CPU", "MEMORY", "PODS", "GPU", "JOBS")


def add_arguments(parser: Parser) -> None:
    cluster.add_to(parser)


def main(options: Namespace) -> int:
    return cluster.asked(options, _nodes)


def _amount(line: NodeLine, kind: str) -> str:
    if kind not in line.has:
        return ""
    return f"{line.has[kind]}" if line.free is None else f"{line.free[kind]}/{line.has[kind]}"


async def _nodes(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.cluster_queue import client

    found = await client.nodes_seen(api, namespace)
    for name, problem in found.problems.items():
        cluster.say(f"FluxQueue {name} is Invalid, and has no nodes: {problem}")
    if options.json:
        cluster.print_json(
            [
                {
                    **{"name": line.name, "queue": line.queue, "usable": line.is_usable, "has": dict(line.has)},
                    **{"free": None if line.free is None else dict(line.free), "jobs": list(line.jobs)},
                }
                for line in found.lines
            ]
        )
        return
    rows: List[Sequence[str]] = [_HEADS]
    for line in found.lines:
        amounts = [_amount(line, kind) for kind in ("cpu", "memory", "pod", "gpu")]
        state = "usable" if line.is_usable else "not usable"
        rows.append((line.name, line.queue, state, *amounts, ",".join(line.jobs)))
    cluster.print_table(rows)
    free = "free of what there is" if found.reads_pods else "what there is (you may not read all pods)"
    cluster.say(f"cpu in thousandths of a core, memory in MiB: {free}")
