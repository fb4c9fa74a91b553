"""The commands of `headrace fluxqueue` that install the queue in a cluster or remove it.

`manifests` prints the objects that install it. `uninstall` removes it and releases all objects that wait in it.
"""

from __future__ import annotations

from headrace.cli.common import installing
from headrace.cli.common.arguments import namespace, optional_name, replicas
from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser


def _manifests_arguments(parser: Parser) -> None:
    parser.add_argument("-n", "--namespace", type=namespace, metavar="NAME", help="The queue's own namespace")
    parser.add_argument("--image", default="", help="Image of the queue (the same as the operator's)")
    parser.add_argument(
        "--replicas", type=replicas, default=1, metavar="N", help="Number of pods; one is active (default: 1)"
    )
    parser.add_argument(
        "--failure-policy",
        choices=("Fail", "Ignore"),
        default="Fail",
        help="While the queue is down, reject new objects in labelled namespaces (Fail, the default), or let them run",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="In labelled namespaces, reject whatever bypasses the queue: labels that exclude an object, pods that "
        "name their node, removed scheduling gates, DaemonSets",
    )
    parser.add_argument("--store", default="", metavar="URL", help="Keep the history in postgresql://USER@HOST/NAME")
    parser.add_argument(
        "--store-secret",
        type=optional_name,
        default="",
        metavar="NAME",
        help="Secret with the database password under the key password",
    )
    parser.add_argument(
        "--store-claim",
        type=optional_name,
        default="",
        metavar="NAME",
        help="Keep the history in a file in the volume of this PersistentVolumeClaim",
    )
    parser.add_argument("--grpc", action="store_true", help="Serve gRPC matching on the live graph, with a Service")
    parser.add_argument(
        "--grpc-queue", type=optional_name, default="", metavar="NAME", help="FluxQueue to match on (default: default)"
    )
    parser.add_argument(
        "--grpc-secret",
        type=optional_name,
        default="",
        metavar="NAME",
        help="Secret with the server's certificate and key (tls.crt, tls.key)",
    )
    parser.add_argument(
        "--grpc-client-secret",
        type=optional_name,
        default="",
        metavar="NAME",
        help="Accept only clients with a certificate signed by ca.crt of this Secret",
    )


def _manifests(options: Namespace) -> int:
    from headrace.programs.cluster_queue.install import Install, check
    from headrace.programs.cluster_queue.package import PACKAGE

    installing.notice_unpublished(*([] if options.image else ["--image"]))
    given = {name: getattr(options, name) for name in Install.__struct_fields__ if hasattr(options, name)}
    install = Install(**{name: value for name, value in given.items() if value})
    try:
        check(install)
    except ValueError as exc:
        raise CommandError(str(exc)) from None
    print(PACKAGE.install_file(install), end="")
    return 0


def _uninstall_arguments(parser: Parser) -> None:
    installing.add_to(parser)
    parser.add_argument(
        "--delete-queues", action="store_true", help="Also delete FluxQueues that users have created or changed"
    )


def _uninstall(options: Namespace) -> int:
    from headrace.cli.common.controller_options import need_extra

    need_extra("the cluster queue")
    from headrace.cluster_queue.names import FLUXQUEUE
    from headrace.programs.cluster_queue.uninstall import declared, uninstall

    return installing.removed(
        options, "headrace fluxqueue", FLUXQUEUE, declared, lambda removal: uninstall(removal, options.delete_queues)
    )


def add_arguments(parser: Parser, name: str) -> None:
    (_manifests_arguments if name == "manifests" else _uninstall_arguments)(parser)


def main(options: Namespace) -> int:
    return _manifests(options) if options.action == "manifests" else _uninstall(options)
