"""The commands of `headrace mini` that change MiniClusters on Kubernetes.

`hpa NAME` has a HorizontalPodAutoscaler size one by its queue; `scale NAME SIZE` changes its number of pods; `delete
NAME...` removes MiniClusters with their pods.
"""

from __future__ import annotations

from headrace.cli.common.arguments import between
from headrace.cli.common.errors import CommandError
from headrace.cli.mini.kube import add_cluster, add_name, connected
from headrace.cli.mini.program import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.api import Api


# As minicluster.fields.MOST_PODS, which a command without extras cannot import.
MOST_PODS = 100_000
_PODS = between(1, MOST_PODS)
# Of stabilizationWindowSeconds. Source: API reference, autoscaling/v2, HPAScalingRules.
_LONGEST_IDLE = 3600


def _hpa_arguments(parser: Parser) -> None:
    add_cluster(parser)
    parser.add_argument("--min", type=_PODS, default=1, metavar="N", help="The fewest pods (default: 1)")
    parser.add_argument("--max", type=_PODS, metavar="N", help="The most pods (default: spec.maxSize, or spec.size)")
    parser.add_argument(
        "--idle",
        type=between(0, _LONGEST_IDLE),
        default=60,
        metavar="SECONDS",
        help="How long less is wanted before it shrinks (60)",
    )
    parser.add_argument("--dry-run", action="store_true", help="Print the autoscaler as JSON, and do not write it")
    add_name(parser)


def _hpa(options: Namespace) -> int:
    if "/" in options.name:
        raise CommandError(f"{options.name} is no MiniCluster, of which alone an autoscaler knows the demand")
    if options.max is not None and options.min > options.max:
        raise CommandError(f"--min {options.min} is above --max {options.max}")

    async def act(api: Api, namespace: str) -> int:
        from headrace.minicluster.client import apply
        from headrace.minicluster.client import clusters as client
        from headrace.minicluster.operator.autoscaler import autoscaler

        try:
            wanted = autoscaler(await client.find(api, namespace, options.name), options.min, options.max, options.idle)
        except ValueError as exc:
            raise CommandError(str(exc)) from None
        if options.dry_run:
            import json

            print(json.dumps(wanted, indent=2))
            return 0
        await apply.apply(api, wanted, namespace, force=False)
        sizes = wanted["spec"]
        print(f"HorizontalPodAutoscaler/{options.name}: {sizes['minReplicas']} to {sizes['maxReplicas']} pods")
        return 0

    return connected(options, act)


def _scale_arguments(parser: Parser) -> None:
    add_cluster(parser)
    add_name(parser)
    parser.add_argument("size", metavar="SIZE", type=int, help="How many pods")


def _scale(options: Namespace) -> int:
    async def act(api: Api, namespace: str) -> int:
        from headrace.flux_jobs.client import jobs
        from headrace.minicluster.client import clusters as client

        foreign = jobs.kind_and_name(options.name)
        if foreign:
            raise client.NotFoundError(jobs.resizing(namespace, *foreign, options.size))
        await client.scale(api, namespace, options.name, options.size, tell)
        print(f"MiniCluster/{options.name} scaled to {options.size}")
        return 0

    return connected(options, act)


def _delete_arguments(parser: Parser) -> None:
    add_cluster(parser)
    parser.add_argument("--no-wait", action="store_true", help="Do not wait until they and their pods are gone")
    parser.add_argument(
        "--without-saving",
        action="store_true",
        help="Do not wait for the operator to save the queue (archive.path), as where none runs any more",
    )
    parser.add_argument("names", metavar="NAME", nargs="+", help="Names of the MiniClusters")


def _delete(options: Namespace) -> int:
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


# The functions of each command: its arguments, and what it does.
_COMMANDS = {
    "hpa": (_hpa_arguments, _hpa),
    "scale": (_scale_arguments, _scale),
    "delete": (_delete_arguments, _delete),
}


def add_arguments(parser: Parser, name: str) -> None:
    _COMMANDS[name][0](parser)


def main(options: Namespace) -> int:
    return _COMMANDS[options.action][1](options)
