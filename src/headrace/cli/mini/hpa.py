"""`headrace mini hpa NAME`: a HorizontalPodAutoscaler that sizes a MiniCluster by its queue."""

from __future__ import annotations

from headrace.cli.common.arguments import between
from headrace.cli.common.errors import CommandError
from headrace.cli.mini.kube import add_cluster, add_name, connected

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


def add_arguments(parser: Parser) -> None:
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


def main(options: Namespace) -> int:
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
