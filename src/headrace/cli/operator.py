"""`headrace operator`: runs the MiniCluster operator, prints its manifests, or uninstalls it."""

from __future__ import annotations

from headrace.cli.common import controller_options, installing
from headrace.cli.common.arguments import Parser, namespace, replicas
from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import List, Tuple

PREFIX = "headrace-operator: "


def _parser() -> Parser:
    parser = Parser(
        "headrace operator",
        usage="headrace operator {run,manifests,uninstall} [OPTIONS]",
        description="Run, install or remove the Kubernetes operator that creates the pods of MiniClusters",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    text = "Run the operator until SIGINT or SIGTERM"
    run = commands.add_parser("run", prog="headrace operator run", help=text)
    where = run.add_mutually_exclusive_group()
    where.add_argument(
        "--namespace",
        dest="namespaces",
        type=_names,
        default=(),
        metavar="NAME,...",
        help="Manage the MiniClusters of these namespaces only",
    )
    where.add_argument("--all-namespaces", action="store_true", help="Manage all MiniClusters (default)")
    run.add_argument("--view-image", default="", metavar="IMAGE", help="Image of the view, which adds Headrace to pods")
    run.add_argument(
        "--view-as-volume", action="store_true", help="Mount the view as an image volume (feature ImageVolume)"
    )
    run.add_argument("--cluster-domain", default="cluster.local", metavar="DOMAIN", help="DNS domain of the cluster")
    run.add_argument(
        "--flux-operator-namespace",
        default="operator-system",
        metavar="NAME",
        help="With --namespace, also look for the Flux Operator in this namespace ('' disables it)",
    )
    run.add_argument(
        "--metrics-api",
        action="store_true",
        help="Serve the metrics of leads to autoscalers (custom and external metrics), on the webhook's port",
    )
    controller_options.add_to(run)
    prints = commands.add_parser(
        "manifests", prog="headrace operator manifests", help="Print the objects that install the operator"
    )
    _add_install(prints)
    removes = commands.add_parser(
        "uninstall", prog="headrace operator uninstall", help="Remove the operator from a cluster, in any namespace"
    )
    installing.add_to(removes)
    removes.add_argument(
        "--delete-miniclusters", action="store_true", help="Also delete all MiniClusters, after saving their queues"
    )
    return parser


def _add_install(parser: Parser) -> None:
    parser.add_argument("-n", "--namespace", type=namespace, metavar="NAME", help="The operator's own namespace")
    parser.add_argument("--image", default="", help="Image of the operator")
    parser.add_argument(
        "--view-image", default="", metavar="IMAGE", help="Image of the view, which adds Headrace to pods"
    )
    parser.add_argument(
        "--watch-namespace", type=_names, default=(), metavar="NAME,...", help="Manage these namespaces only"
    )
    parser.add_argument(
        "--network-policy",
        type=_names,
        default=(),
        metavar="NAME,...",
        help="Restrict access to the brokers of MiniClusters in these namespaces (NetworkPolicy)",
    )
    parser.add_argument(
        "--view-as-volume", action="store_true", help="Mount the view as an image volume (feature ImageVolume)"
    )
    parser.add_argument(
        "--cluster-domain", default="", metavar="DOMAIN", help="DNS domain of the cluster (default: cluster.local)"
    )
    parser.add_argument(
        "--flux-operator-namespace",
        default="",
        metavar="NAME",
        help="With --watch-namespace: allow the operator to look for the Flux Operator in this namespace",
    )
    parser.add_argument(
        "--replicas", type=replicas, default=1, metavar="N", help="Number of operator pods; one is active (default: 1)"
    )
    parser.add_argument("--no-webhook", action="store_true", help="Leave out the admission webhook")
    parser.add_argument("--cert-manager", action="store_true", help="Get the webhook's certificate from cert-manager")
    parser.add_argument(
        "--metrics-api", action="store_true", help="Serve the metrics of leads to autoscalers (needs the webhook)"
    )
    parser.add_argument("--trainer", action="store_true", help="Add training runtimes for Kubeflow Trainer")


def _names(text: str) -> Tuple[str, ...]:
    """Parse NAME,... as names of namespaces. Raises ArgumentTypeError."""
    return tuple(namespace(name) for name in text.split(",") if name)


def _manifests(options: Namespace) -> int:
    from headrace.programs.operator.install import Install
    from headrace.programs.operator.package import PACKAGE

    installing.notice_unpublished(
        *(name for name, given in (("--image", options.image), ("--view-image", options.view_image)) if not given)
    )
    given = {
        **{"namespace": options.namespace, "image": options.image, "view_image": options.view_image},
        **{"watched": options.watch_namespace, "replicas": options.replicas},
        **{"network_policies": options.network_policy, "view_as_volume": options.view_as_volume},
        **{"cluster_domain": options.cluster_domain, "flux_operator_namespace": options.flux_operator_namespace},
        **{"trainer": options.trainer, "metrics_api": options.metrics_api},
    }
    chosen = {name: value for name, value in given.items() if value}
    install = Install(**chosen, webhook=not options.no_webhook, cert_manager=options.cert_manager)
    print(PACKAGE.install_file(install), end="")
    return 0


def main(argv: List[str]) -> int:
    options = _parser().parse_args(argv)
    if options.action == "uninstall":
        return _uninstall(options)
    if options.metrics_api and (options.no_webhook if options.action == "manifests" else not options.webhook_bind):
        raise CommandError("--metrics-api needs the webhook: autoscalers connect to its server")
    if options.action == "manifests":
        return _manifests(options)
    controller_options.need_extra("the operator")
    return _run(options)


def _uninstall(options: Namespace) -> int:
    controller_options.need_extra("Kubernetes")
    from headrace.minicluster.operator.names import OPERATOR
    from headrace.programs.operator.uninstall import declared, uninstall

    with_clusters = options.delete_miniclusters
    return installing.removed(
        options, "headrace operator", OPERATOR, declared, lambda removal: uninstall(removal, with_clusters)
    )


def _run(options: Namespace) -> int:
    from headrace.minicluster.operator.builders import Images
    from headrace.minicluster.operator.controller import Options
    from headrace.programs.operator.serve import serve

    view = {"view": options.view_image} if options.view_image else {}
    images = Images(**view, as_volume=options.view_as_volume)
    chosen = Options(
        namespaces=options.namespaces,
        images=images,
        cluster_domain=options.cluster_domain,
        flux_operator_namespace=options.flux_operator_namespace,
        metrics_api=options.metrics_api,
    )
    return controller_options.run_until_stopped(options, lambda serving: serve(serving, chosen))
