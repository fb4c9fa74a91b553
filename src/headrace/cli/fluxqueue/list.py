"""`headrace fluxqueue list`: what waits and runs, each queue in its order."""

from __future__ import annotations

from headrace.cli.fluxqueue import cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.api import Api


_HEADS = ("NAME", "KIND", "STATE", "QUEUE", "POSITION", "PODS", "ESTIMATE", "REASON")


def add_arguments(parser: Parser) -> None:
    cluster.add_to(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="The jobs of all namespaces")
    parser.add_argument("-a", "--all", action="store_true", help="Those that have ended, too")


def main(options: Namespace) -> int:
    return cluster.asked(options, _list)


async def _list(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.cluster_queue import client

    found = await client.listed(api, namespace, options.all_namespaces, options.all)
    if options.json:
        cluster.print_json({"jobs": [cluster.summary(line) for line in found.lines], "unread": dict(found.unread)})
        return
    rows = [(("NAMESPACE",) if options.all_namespaces else ()) + _HEADS]
    for line in found.lines:
        meta, spec, status = line.job["metadata"], line.job["spec"], line.job.get("status") or {}
        position = f"{'' if line.is_exact else '~'}{line.position}" if line.position else ""
        cells = [meta["namespace"]] if options.all_namespaces else []
        cells += [str(spec.get("name", "")), meta["name"].rpartition("-")[2], status.get("state", "Held")]
        cells += [str(spec.get("queue", "")), position, str(spec.get("nodes", ""))]
        rows.append((*cells, status.get("estimatedStart", ""), status.get("reason", "")))
    cluster.print_table(rows)
    for queue, count in found.unread.items():
        if count:
            cluster.say(f"{count} job{'' if count == 1 else 's'} that you may not read {'is' if count == 1 else 'are'} "
                 f"before the last of these in queue {queue}")  # fmt: skip
