"""The commands of `headrace mini` that change MiniClusters on Kubernetes.

`hpa NAME` creates a HorizontalPodAutoscaler that sizes a MiniCluster by its queue. `scale NAME SIZE` changes its number
of pods. `delete NAME...` deletes MiniClusters and their pods.
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


# Same value as minicluster.fields.MOST_PODS, which cannot be imported without the extras.
MOST_PODS = 100_000
_PODS = between(1, MOST_PODS)
# Largest stabilizationWindowSeconds. Source: API reference, autoscaling/v2, HPAScalingRules.
_LONGEST_IDLE = 3600


def _hpa_arguments(parser: Parser) -> None:
    add_cluster(parser)
    parser.add_argument("--min", type=_PODS, default=1, metavar="N", help="Smallest number of pods (default: 1)")
    parser.add_argument(
        "--max", type=_PODS, metavar="N", help="Largest number of pods (default: spec.maxSize, or spec.size)"
    )
    parser.add_argument(
        "--idle",
        type=between(0, _LONGEST_IDLE),
        default=60,
        metavar="SECONDS",
        help="Shrink after the demand has been lower for this long (default: 60)",
    )
    parser.add_argument("--dry-run", action="store_true", help="Print the autoscaler as JSON and do not apply it")
    add_name(parser)


def _hpa(options: Namespace) -> int:
    if "/" in options.name:
        raise CommandError(f"{options.name} is not a MiniCluster: an autoscaler gets the demand of MiniClusters only")
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
    parser.add_argument("size", metavar="SIZE", type=int, help="Number of pods")


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
    parser.add_argument(
        "--no-wait", action="store_true", help="Do not wait until the MiniClusters and their pods are gone"
    )
    parser.add_argument(
        "--without-saving",
        action="store_true",
        help="Do not wait for the operator to save the queue (archive.path); for a cluster where no operator runs",
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
                # Continue with the other names, as kubectl does.
                tell(str(exc))
                missing += 1
        for one in deleted:
            if not options.no_wait:
                await client.wait_until_deleted(api, one, tell)
            print(f"MiniCluster/{one.name} deleted")
        return 1 if missing else 0

    return connected(options, act)


# For each command, the function that adds its arguments and the function that runs it.
_COMMANDS = {
    "hpa": (_hpa_arguments, _hpa),
    "scale": (_scale_arguments, _scale),
    "delete": (_delete_arguments, _delete),
}


def add_arguments(parser: Parser, name: str) -> None:
    _COMMANDS[name][0](parser)


def main(options: Namespace) -> int:
    return _COMMANDS[options.action][1](options)
