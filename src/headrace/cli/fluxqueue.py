"""`headrace fluxqueue run|manifests`: the queue for all pods of a Kubernetes cluster, and its install."""

from __future__ import annotations

from headrace.cli.common import controller_options
from headrace.cli.common.arguments import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "headrace-fluxqueue: "


def _parser() -> Parser:
    parser = Parser(
        "headrace fluxqueue",
        usage="headrace fluxqueue {run,manifests} [OPTIONS]",
        description="Run the queue in which the pods of labelled namespaces wait, or print what installs it",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    run = commands.add_parser("run", prog="headrace fluxqueue run", help="Run the queue until it is told to stop")
    controller_options.add_to(run)
    prints = commands.add_parser(
        "manifests", prog="headrace fluxqueue manifests", help="Print the objects that install the queue"
    )
    prints.add_argument("-n", "--namespace", default="", metavar="NAME", help="The queue's own namespace")
    prints.add_argument("--image", default="", help="Image of the queue, which is that of the operator")
    prints.add_argument("--replicas", type=int, default=1, metavar="N", help="Processes; one acts (default: 1)")
    prints.add_argument(
        "--failure-policy",
        choices=("Fail", "Ignore"),
        default="Fail",
        help="While the queue is away, refuse what is created in labelled namespaces (the default), or let it run",
    )
    return parser


def main(argv: List[str]) -> int:
    options = _parser().parse_args(argv)
    controller_options.need_extra("the cluster queue")
    if options.action == "manifests":
        from headrace.fluxqueue.install import Install, install_file

        given = {"namespace": options.namespace, "image": options.image, "replicas": options.replicas}
        chosen = {name: value for name, value in given.items() if value}
        print(install_file(Install(**chosen, failure_policy=options.failure_policy)), end="")
        return 0

    from headrace.fluxqueue import serve

    return controller_options.run_until_stopped(options, serve.serve)
