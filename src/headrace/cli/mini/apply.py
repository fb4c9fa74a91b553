"""`headrace mini apply FILE`: applies a MiniCluster file to Kubernetes and shows its progress."""

from __future__ import annotations

import json

from headrace.cli.mini.file import add_file, load_file
from headrace.cli.mini.kube import add_cluster, connected, follow_until
from headrace.cli.mini.program import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.api import Api


def add_arguments(parser: Parser, _name: str = "") -> None:
    add_cluster(parser)
    waits = parser.add_mutually_exclusive_group()
    waits.add_argument("-w", "--wait", action="store_true", help="Wait for the job to end, and exit with its status")
    waits.add_argument("--no-wait", action="store_true", help="Return as soon as the API server has accepted FILE")
    parser.add_argument(
        "--force", action="store_true", help="Overwrite fields that another manager, such as an autoscaler, has set"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="Print no progress")
    parser.add_argument("--json", action="store_true", help="Print the MiniCluster as JSON at the end")
    add_file(parser)


def main(options: Namespace) -> int:
    source = load_file(options.file)

    async def act(api: Api, namespace: str) -> int:
        from headrace.k8s.objects.kinds import MINICLUSTERS
        from headrace.minicluster.client import apply
        from headrace.minicluster.client import clusters as client
        from headrace.minicluster.client.apply import find_stale_fields, removal

        where, cluster = namespace, None
        if not options.no_wait:
            await apply.check(api, source.documents, namespace)
        for document in source.documents:
            stored, taken_over = await apply.apply(api, document, namespace, options.force)
            kind, name = stored.get("kind", document.get("kind")), stored["metadata"]["name"]
            if kind == MINICLUSTERS.kind:
                where, cluster = stored["metadata"]["namespace"], stored
            over = "".join(f", overwrote {one.field} of {one.manager}" for one in taken_over)
            _say(options, f"{kind}/{name} applied{over}")
            stale = find_stale_fields(stored, document) if kind == MINICLUSTERS.kind else None
            if stale:
                _say(options, f"{kind}/{name}: {stale}; to remove: {removal(stale, where, name)}")
        assert cluster is not None
        comes_to_nothing = client.ended(cluster) or client.other_manager(cluster)
        if comes_to_nothing:
            _say(options, comes_to_nothing)
        elif not options.no_wait:
            phases = client.OVER if options.wait else client.SETTLED
            cluster = await follow_until(api, cluster, phases, lambda line: _say(options, line))
        if options.json:
            print(json.dumps(_shown(cluster), indent=2))
        if options.no_wait or comes_to_nothing:
            return 0
        failed = client.status_of(cluster).get("phase") in ("Failed", "Invalid")
        return client.exit_status(cluster) if options.wait or failed else 0

    return connected(options, act)


def _shown(cluster: Dict[str, Any]) -> Dict[str, Any]:
    metadata = {key: value for key, value in cluster["metadata"].items() if key != "managedFields"}
    return {**cluster, "metadata": metadata}


def _say(options: Namespace, line: str) -> None:
    if not options.quiet:
        tell(line)
