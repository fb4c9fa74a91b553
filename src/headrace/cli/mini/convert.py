"""`headrace mini convert FILE`: a Job, JobSet or TrainJob as a MiniCluster; fields without a place there on stderr."""

from __future__ import annotations

import sys

from headrace.cli.mini.file import refusal
from headrace.cli.mini.foreign import add_file, load_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser


def add_arguments(parser: Parser) -> None:
    add_file(parser)


def main(options: Namespace) -> int:
    from headrace.flux_jobs.read.convert import convert
    from headrace.k8s.packaging.yaml_text import yaml_text
    from headrace.minicluster.api.fields import InvalidMiniCluster

    source = load_file(options.file, options.runtime)
    try:
        document, lost = convert(source.cluster)
    except InvalidMiniCluster as exc:
        raise refusal(options.file, exc) from None
    for path in (*lost, *source.others):
        sys.stderr.write(f"{options.file}: a MiniCluster has no place for {path}\n")
    sys.stdout.write(yaml_text([document]))
    return 0
