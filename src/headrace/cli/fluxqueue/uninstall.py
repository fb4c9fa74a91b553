"""`headrace fluxqueue uninstall`: the queue removed from a cluster, with all that waits in it released."""

from __future__ import annotations

from headrace.cli.common import uninstall_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser


def add_arguments(parser: Parser) -> None:
    uninstall_options.add_to(parser)
    parser.add_argument(
        "--delete-queues", action="store_true", help="Delete FluxQueues that people have written or changed, too"
    )


def main(options: Namespace) -> int:
    from headrace.cli.common.controller_options import need_extra

    need_extra("the cluster queue")
    from headrace.cluster_queue.names import FLUXQUEUE
    from headrace.programs.cluster_queue.uninstall import declared, uninstall

    return uninstall_options.removed(
        options, "headrace fluxqueue", FLUXQUEUE, declared, lambda removal: uninstall(removal, options.delete_queues)
    )
