"""`headrace mini validate FILE`: everything that is wrong with a MiniCluster file, or that it is valid."""

from __future__ import annotations

import sys

from headrace.cli.mini.file import add_file, load_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser


def add_arguments(parser: Parser) -> None:
    add_file(parser)


def main(options: Namespace) -> int:
    from headrace.formats.config.keys import warnings
    from headrace.minicluster.api.plan import given_config
    from headrace.minicluster.api.unapplied import without_effect

    source = load_file(options.file)
    spec = source.cluster.spec
    for line in without_effect(source.cluster):
        sys.stderr.write(f"{options.file}: {line}\n")
    # At a run the lead says so.
    for line in warnings(given_config(source.cluster.flux.broker_config)):
        sys.stderr.write(f"{options.file}: spec.flux.brokerConfig: {line}\n")
    print(f"{options.file}: MiniCluster {source.cluster.name} is valid (size {spec.size}, tasks {spec.tasks})")
    return 0
