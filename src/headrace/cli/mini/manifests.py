"""`headrace mini manifests FILE`: the Kubernetes objects of a MiniCluster, for `kubectl apply` without an operator.

They are the objects that the operator applies, with fresh keys and without an owner.
"""

from __future__ import annotations

import json
import sys

from headrace.cli.common import unpublished_images
from headrace.cli.mini.file import add_file, load_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser


def add_arguments(parser: Parser) -> None:
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


def main(options: Namespace) -> int:
    import msgspec

    from headrace.k8s.packaging.images import DEFAULT_VIEW
    from headrace.k8s.packaging.yaml_text import yaml_text
    from headrace.minicluster.operator.builders import Images, desired, view_image
    from headrace.minicluster.operator.keys import fresh_keys

    if options.view_image == DEFAULT_VIEW:
        unpublished_images.notice("--view-image")
    source = load_file(options.file)
    cluster = source.cluster
    if options.namespace:
        cluster = msgspec.structs.replace(cluster, namespace=options.namespace)
    images = Images(view=options.view_image, as_volume=options.view_as_volume)
    if cluster.spec.flux and cluster.spec.flux.container and view_image(cluster, images)[1]:
        image, instead_of = view_image(cluster, images)
        sys.stderr.write(f"{options.file}: the view is {image}, which stands in for {instead_of}\n")
    if source.others:
        sys.stderr.write(f"{options.file}: not printed, apply them from the file: {', '.join(source.others)}\n")
    objects = desired(cluster, uid="", images=images, keys=fresh_keys(), cluster_domain=options.cluster_domain)
    if options.json:
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2))
    else:
        sys.stdout.write(yaml_text(objects))
    return 0
