"""Reads the file of a MiniCluster, Job, JobSet or TrainJob and reports errors in it."""

from __future__ import annotations

import os
import random
import sys

from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from headrace.cli.common.arguments import Parser
    from headrace.flux_jobs.read.load import Source as ForeignSource
    from headrace.minicluster.api.fields import InvalidMiniCluster
    from headrace.minicluster.api.validate import Source


# Characters that the API server appends to a `generateName`: no vowels and no digits that look like letters.
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


def add_file(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="A MiniCluster in YAML ('-' is standard input)")


def read_text(path: str) -> str:
    """The text of a file, at most LARGEST + 1 characters of it. Raises CommandError."""
    from headrace.minicluster.api.documents import LARGEST

    try:
        if path == "-":
            return sys.stdin.read(LARGEST + 1)
        with open(path, encoding="utf-8") as handle:
            return handle.read(LARGEST + 1)
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror}") from None
    except UnicodeDecodeError as exc:
        raise CommandError(f"{path}: not UTF-8 text: {exc.reason} at byte {exc.start}") from None


def refusal(path: str, exc: InvalidMiniCluster) -> CommandError:
    """An error with a line for each problem of a file."""
    lines = "".join(f"{path}: {problem}\n" for problem in exc.problems)
    count = len(exc.problems)
    return CommandError(f"{lines}{count} error{'s' if count > 1 else ''}", bare=True)


def load_file(path: str) -> Source:
    """Load the MiniCluster of a file. Raises CommandError with a line for each error."""
    from headrace.minicluster.api.fields import InvalidMiniCluster
    from headrace.minicluster.api.plan import make_plan, mode_of
    from headrace.minicluster.api.shell_text import Mode
    from headrace.minicluster.api.validate import load

    try:
        source = load(read_text(path), "".join(random.choices(_SUFFIX, k=5)))
    except InvalidMiniCluster as exc:
        raise refusal(path, exc) from None
    for warning in source.warnings:
        sys.stderr.write(f"{path}: {warning}\n")
    mode, spec = mode_of(source.cluster), source.cluster.spec
    if mode is Mode.INTERACTIVE and not spec.interactive:
        sys.stderr.write(f"{path}: no command: the cluster is interactive and stays until it is stopped\n")
    if mode in (Mode.SUBMIT, Mode.BATCH) and make_plan(source.cluster).config.get("queues"):
        sys.stderr.write(
            f"{path}: spec.flux.brokerConfig: named queues are stopped at first: the job waits until you start them "
            "with `flux queue start --all`\n"
        )
    if mode is Mode.BATCH and 0 < spec.tasks < spec.size and not source.cluster.logging.quiet:
        sys.stderr.write(
            f"{path}: spec.tasks: the batch job gets resources for {spec.tasks} task{'s' if spec.tasks > 1 else ''}, "
            f"not all {spec.size} nodes; use tasks: 0 for all nodes\n"
        )
    return source


def add_foreign_file(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="A Job, JobSet or TrainJob in YAML ('-' is standard input)")
    parser.add_argument(
        "--runtime",
        metavar="FILE|NAME",
        help="The runtime of a TrainJob (default: the one it refers to, from FILE or built into Headrace)",
    )


def load_foreign_file(path: str, runtime: Optional[str]) -> ForeignSource:
    """Load the Job, JobSet or TrainJob of a file. Raises CommandError with a line for each error."""
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
    """The document of a training runtime, given by file or by name. Raises CommandError."""
    from headrace.flux_jobs.read.load import load_runtime
    from headrace.flux_jobs.read.runtimes import BUILT_IN
    from headrace.minicluster.api.fields import InvalidMiniCluster

    if given in BUILT_IN and not os.path.exists(given):
        return BUILT_IN[given]
    if not os.path.exists(given):
        raise CommandError(f"--runtime={given}: no such file or built-in runtime ({', '.join(BUILT_IN)})")
    try:
        return load_runtime(read_text(given))
    except InvalidMiniCluster as exc:
        raise refusal(given, exc) from None
