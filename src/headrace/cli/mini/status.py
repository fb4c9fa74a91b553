"""`headrace mini status [NAME]`: shows MiniClusters and labelled Jobs, or the details of one."""

from __future__ import annotations

import json

from headrace.cli.common.arguments import object_name
from headrace.cli.common.errors import CommandError
from headrace.cli.mini.kube import OTHERS, add_cluster, connected, follow_until
from headrace.cli.mini.program import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.api import Api

_HEADS = ("NAME", "PHASE", "READY", "SIZE", "EXIT", "REASON")


def add_arguments(parser: Parser, _name: str = "") -> None:
    add_cluster(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="List the clusters of all namespaces")
    parser.add_argument("--json", action="store_true", help="Print JSON")
    parser.add_argument(
        "-w", "--wait", action="store_true", help="Wait for NAME to end, and exit with its job's status"
    )
    name = f"Name of the MiniCluster (default: all), or {OTHERS}"
    parser.add_argument("name", type=object_name, metavar="NAME", nargs="?", help=name)


def main(options: Namespace) -> int:
    if options.wait and not options.name:
        raise CommandError("--wait: name the MiniCluster to wait for")

    async def act(api: Api, namespace: str) -> int:
        from headrace.flux_jobs.client import jobs
        from headrace.k8s.objects.kinds import MINICLUSTERS
        from headrace.minicluster.client import clusters as client

        if options.name:
            foreign = jobs.kind_and_name(options.name)
            one = await (jobs.find(api, namespace, *foreign) if foreign else client.find(api, namespace, options.name))
            if options.wait:
                one = await follow_until(api, one, client.OVER, tell)
            print(json.dumps(_summary(one), indent=2) if options.json else "\n".join(_details(one)))
            return client.exit_status(one) if options.wait else 0
        where = "" if options.all_namespaces else namespace
        found = (await api.list_objects(MINICLUSTERS, where)).items + await jobs.listed(api, where)
        if options.json:
            print(json.dumps([_summary(one) for one in found], indent=2))
        else:
            print("\n".join(_table(found, options.all_namespaces)))
        return 0

    return connected(options, act)


def _summary(cluster: Dict[str, Any]) -> Dict[str, Any]:
    metadata = cluster["metadata"]
    names = {"name": metadata["name"], "namespace": metadata["namespace"], "kind": cluster["kind"]}
    return {**names, "size": cluster["spec"].get("size", 1), "status": cluster.get("status") or {}}


def _table(clusters: List[Dict[str, Any]], with_namespaces: bool) -> List[str]:
    rows = [(("NAMESPACE",) if with_namespaces else ()) + _HEADS]
    for one in clusters:
        status = one.get("status") or {}
        cells = [one["metadata"]["namespace"]] if with_namespaces else []
        # The form that commands accept as NAME.
        prefix = "job/" if one["kind"] == "Job" else ""
        cells += [f"{prefix}{one['metadata']['name']}", status.get("phase", ""), status.get("ready", "")]
        cells += [str(one["spec"].get("size", 1)), str(status.get("exitCode", "")), status.get("reason", "")]
        rows.append(tuple(cells))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _details(cluster: Dict[str, Any]) -> List[str]:
    status = cluster.get("status") or {}
    jobs = ", ".join(f"{count} {state}" for state, count in (status.get("jobs") or {}).items() if count)
    rows = [
        ("name", f"{cluster['metadata']['namespace']}/{cluster['metadata']['name']}"),
        ("phase", status.get("phase", "none yet: is the operator running?")),
        ("reason", status.get("reason", "")),
        ("size", str(cluster["spec"].get("size", 1))),
        ("brokers up", status.get("ready", "")),
        ("jobs", jobs),
        ("exit code", str(status.get("exitCode", ""))),
        *((f"time of {name}", moment) for name, moment in (status.get("times") or {}).items()),
    ]
    conditions = status.get("conditions") or []
    rows += [(one["type"], f"{one['status']}  {one['reason']}: {one['message']}") for one in conditions]
    width = max(len(name) for name, _ in rows) + 1
    return [f"{name + ':':<{width}} {text}" for name, text in rows if text]
