"""`headrace mini delete NAME...`: MiniClusters removed from Kubernetes, with their pods."""

from __future__ import annotations

from headrace.cli.mini.kube import add_cluster, connected
from headrace.cli.mini.program import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.api import Api


def add_arguments(parser: Parser) -> None:
    add_cluster(parser)
    parser.add_argument("--no-wait", action="store_true", help="Do not wait until they and their pods are gone")
    parser.add_argument(
        "--without-saving",
        action="store_true",
        help="Do not wait for the operator to save the queue (archive.path), as where none runs any more",
    )
    parser.add_argument("names", metavar="NAME", nargs="+", help="Names of the MiniClusters")


def main(options: Namespace) -> int:
    async def act(api: Api, namespace: str) -> int:
        from headrace.flux_jobs.client import jobs
        from headrace.minicluster.client import clusters as client

        deleted, missing = [], 0
        for name in options.names:
            try:
                foreign = jobs.kind_and_name(name)
                if foreign:
                    raise client.NotFoundError(jobs.deletion(namespace, *foreign))
                gone = await client.delete(api, namespace, name, tell, without_saving=options.without_saving)
                deleted.append(gone)
            except client.NotFoundError as exc:
                # The others go nevertheless, as with kubectl.
                tell(str(exc))
                missing += 1
        for one in deleted:
            if not options.no_wait:
                await client.wait_until_deleted(api, one, tell)
            print(f"MiniCluster/{one.name} deleted")
        return 1 if missing else 0

    return connected(options, act)
