"""Reads the file of a Job, JobSet or TrainJob that a command is given, and tells what is wrong in it."""

from __future__ import annotations

import os
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.mini.file import read_text, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from headrace.cli.common.arguments import Parser
    from headrace.flux_jobs.read.load import Source


def add_file(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="A Job, JobSet or TrainJob in YAML ('-' is standard input)")
    parser.add_argument(
        "--runtime",
        metavar="FILE|NAME",
        help="The runtime of a TrainJob (default: the one of FILE or of Headrace that it refers to)",
    )


def load_file(path: str, runtime: Optional[str]) -> Source:
    """The cluster of a file. Raises CommandError with a line for each thing that is wrong with it."""
    from headrace.flux_jobs.read.load import load
    from headrace.minicluster.api.fields import InvalidMiniCluster

    chosen = None if runtime is None else _runtime(runtime)
    try:
        source = load(read_text(path), chosen)
    except InvalidMiniCluster as exc:
        raise refusal(path, exc) from None
    for warning in source.warnings:
        sys.stderr.write(f"{path}: {warning}\n")
    return source


def _runtime(given: str) -> Any:
    """The document of a runtime, by its file or its name. Raises CommandError."""
    from headrace.flux_jobs.read.load import load_runtime
    from headrace.flux_jobs.read.runtimes import BUILT_IN
    from headrace.minicluster.api.fields import InvalidMiniCluster

    if given in BUILT_IN and not os.path.exists(given):
        return BUILT_IN[given]
    if not os.path.exists(given):
        raise CommandError(f"--runtime={given}: no such file; by name there are {', '.join(BUILT_IN)}")
    try:
        return load_runtime(read_text(given))
    except InvalidMiniCluster as exc:
        raise refusal(given, exc) from None
