"""`headrace mini manifests FILE`: the Kubernetes objects of a MiniCluster, for `kubectl apply` without an operator.

They are the objects that the operator applies, with fresh keys and without an owner.
"""

from __future__ import annotations

import json
import sys

from headrace.cli.mini_file import add_file, load_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List

    from headrace.cli.arguments import Parser


def add_arguments(parser: Parser) -> None:
    from headrace.kube.builders.images import DEFAULT_VIEW

    parser.add_argument(
        "-n", "--namespace", metavar="NAME", default="", help="the objects' namespace (default: FILE's)"
    )
    parser.add_argument(
        "--view-image", metavar="IMAGE", default=DEFAULT_VIEW, help=f"image of the view (default: {DEFAULT_VIEW})"
    )
    parser.add_argument(
        "--image-volume", action="store_true", help="mount the view's image as a volume (Kubernetes 1.33 and later)"
    )
    parser.add_argument(
        "--cluster-domain", metavar="DOMAIN", default="cluster.local", help="DNS domain of the Kubernetes cluster"
    )
    parser.add_argument("--json", action="store_true", help="print one List in JSON instead of YAML documents")
    add_file(parser)


def main(options: Namespace) -> int:
    import msgspec

    from headrace.kube.builders import Images, desired, view_image
    from headrace.kube.keys import fresh_keys

    source = load_file(options.file)
    cluster = source.cluster
    if options.namespace:
        cluster = msgspec.structs.replace(cluster, namespace=options.namespace)
    images = Images(view=options.view_image, as_volume=options.image_volume)
    if cluster.spec.flux and cluster.spec.flux.container and view_image(cluster, images)[1]:
        image, instead_of = view_image(cluster, images)
        sys.stderr.write(f"{options.file}: the view is {image}, which stands in for {instead_of}\n")
    if source.others:
        sys.stderr.write(f"{options.file}: not printed, apply them from the file: {', '.join(source.others)}\n")
    objects = desired(cluster, uid="", images=images, keys=fresh_keys(), cluster_domain=options.cluster_domain)
    if options.json:
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2))
    else:
        sys.stdout.write(_yaml(objects))
    return 0


def _yaml(objects: List[Dict[str, Any]]) -> str:
    """YAML whose text has quotes wherever YAML 1.1 or 1.2 could read it as a number, a date or a truth value."""
    import re

    import yaml

    plain = re.compile(r"[A-Za-z/][-A-Za-z0-9_./]*\Z")
    words = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        style = None if plain.match(value) and value.lower() not in words else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return "".join(
        "---\n" + str(yaml.dump(one, Dumper=Dumper, sort_keys=False, width=10_000, allow_unicode=True))
        for one in objects
    )
