"""The commands of `headrace mini` that read a file and print a result, without a cluster.

`validate FILE` reports everything that is wrong with a MiniCluster. `convert FILE` prints a Job, JobSet or TrainJob as
a MiniCluster, and on stderr the fields that a MiniCluster does not have. `manifests FILE` prints the objects that the
operator would create for a MiniCluster.
"""

from __future__ import annotations

import json
import sys

from headrace.cli.mini.file import add_file, add_foreign_file, load_file, load_foreign_file, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser


def _validate_arguments(parser: Parser) -> None:
    add_file(parser)


def _validate(options: Namespace) -> int:
    from headrace.formats.config.keys import warnings
    from headrace.minicluster.api.plan import given_config
    from headrace.minicluster.api.unapplied import without_effect

    source = load_file(options.file)
    spec = source.cluster.spec
    for line in without_effect(source.cluster):
        sys.stderr.write(f"{options.file}: {line}\n")
    # When the MiniCluster runs, the lead prints these warnings.
    for line in warnings(given_config(source.cluster.flux.broker_config)):
        sys.stderr.write(f"{options.file}: spec.flux.brokerConfig: {line}\n")
    print(f"{options.file}: MiniCluster {source.cluster.name} is valid (size {spec.size}, tasks {spec.tasks})")
    return 0


def _convert_arguments(parser: Parser) -> None:
    add_foreign_file(parser)


def _convert(options: Namespace) -> int:
    from headrace.flux_jobs.read.convert import convert
    from headrace.k8s.packaging.yaml_text import yaml_text
    from headrace.minicluster.api.fields import InvalidMiniCluster

    source = load_foreign_file(options.file, options.runtime)
    try:
        document, lost = convert(source.cluster)
    except InvalidMiniCluster as exc:
        raise refusal(options.file, exc) from None
    for path in (*lost, *source.others):
        sys.stderr.write(f"{options.file}: not converted (a MiniCluster has no equivalent): {path}\n")
    sys.stdout.write(yaml_text([document]))
    return 0


def _manifests_arguments(parser: Parser) -> None:
    from headrace.k8s.packaging.images import DEFAULT_VIEW

    parser.add_argument(
        "-n", "--namespace", metavar="NAME", default="", help="The objects' namespace (default: FILE's)"
    )
    parser.add_argument(
        "--view-image", metavar="IMAGE", default=DEFAULT_VIEW, help=f"Image of the view (default: {DEFAULT_VIEW})"
    )
    parser.add_argument(
        "--view-as-volume", action="store_true", help="Mount the view as an image volume (feature ImageVolume)"
    )
    parser.add_argument(
        "--cluster-domain", metavar="DOMAIN", default="cluster.local", help="DNS domain of the Kubernetes cluster"
    )
    parser.add_argument("--json", action="store_true", help="Print one List in JSON instead of YAML documents")
    add_file(parser)


def _manifests(options: Namespace) -> int:
    import msgspec

    from headrace.cli.common import installing
    from headrace.k8s.packaging.images import DEFAULT_VIEW
    from headrace.k8s.packaging.yaml_text import yaml_text
    from headrace.minicluster.operator.builders import Images, desired, view_image
    from headrace.minicluster.operator.keys import fresh_keys

    if options.view_image == DEFAULT_VIEW:
        installing.notice_unpublished("--view-image")
    source = load_file(options.file)
    cluster = source.cluster
    if options.namespace:
        cluster = msgspec.structs.replace(cluster, namespace=options.namespace)
    images = Images(view=options.view_image, as_volume=options.view_as_volume)
    if cluster.spec.flux and cluster.spec.flux.container and view_image(cluster, images)[1]:
        image, instead_of = view_image(cluster, images)
        sys.stderr.write(f"{options.file}: using the view {image} instead of {instead_of}\n")
    if source.others:
        sys.stderr.write(f"{options.file}: not printed, apply them from the file: {', '.join(source.others)}\n")
    objects = desired(cluster, uid="", images=images, keys=fresh_keys(), cluster_domain=options.cluster_domain)
    if options.json:
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2))
    else:
        sys.stdout.write(yaml_text(objects))
    return 0


# For each command, the function that adds its arguments and the function that runs it.
_COMMANDS = {
    "validate": (_validate_arguments, _validate),
    "convert": (_convert_arguments, _convert),
    "manifests": (_manifests_arguments, _manifests),
}


def add_arguments(parser: Parser, name: str) -> None:
    _COMMANDS[name][0](parser)


def main(options: Namespace) -> int:
    return _COMMANDS[options.action][1](options)
