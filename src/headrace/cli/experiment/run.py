"""`headrace experiment run FILE`, and what it shares with `resume`."""

from __future__ import annotations

import os
import shlex
import sys

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import positive_int
from headrace.cli.experiment.plan import add_selection, load, parse_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import List

    from headrace.experiments.run.session import Progress
    from headrace.experiments.store.folder import Folder

# Seconds between two lines of progress, in place at a terminal and otherwise.
_REDRAW, _LINE = 0.5, 10.0


def add_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="The experiment in YAML")
    parser.add_argument("--out", metavar="DIR", help="Make this folder for the results (default: NAME-DATE-TIME)")
    add_selection(parser)
    add_carrying_out(parser)


def add_carrying_out(parser: Parser) -> None:
    """Add the options that `run` and `resume` share."""
    parser.add_argument(
        "--jobs",
        type=positive_int,
        default=0,
        metavar="N",
        help="Run at most N at a time on each target (default: 1 on local brokers, as many as fit elsewhere)",
    )
    parser.add_argument(
        "--layout",
        choices=("flux-cloud",),
        metavar="NAME",
        help="Write the results also in the tree of another program (flux-cloud)",
    )


def main(options: Namespace) -> int:
    from headrace.experiments.plan import plan
    from headrace.experiments.run import provenance
    from headrace.experiments.store.folder import Folder, FolderError

    experiment = load(options.file, options.target, options.only)
    folder = Folder(options.out or _default_folder(experiment.name))
    if folder.exists():
        raise CommandError(f"{folder.path}: has an experiment: continue it with `headrace experiment resume`")
    for note in experiment.notes:
        _warn(note)
    try:
        with open(options.file, "rb") as file:
            text = file.read()
        folder.create(text, experiment, plan(experiment, provenance.new_seed()), provenance.collect(experiment))
    except FolderError as exc:
        raise CommandError(str(exc)) from None
    sys.stderr.write(f"results: {os.path.relpath(folder.path)}\n")
    return carry_out(folder, options)


def _default_folder(name: str) -> str:
    import time

    return f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def carry_out(folder: Folder, options: Namespace) -> int:
    """Carry out what is left of an experiment, and write its report; returns the exit status."""
    from headrace.experiments.run import session
    from headrace.experiments.store.folder import FolderError

    shown = _Shown(sys.stderr.isatty())
    try:
        summary = session.run(folder, parse_options, options.jobs, shown.show, _warn)
    except (FolderError, ValueError) as exc:
        raise CommandError(str(exc)) from None
    finally:
        shown.close()
    problems = [*summary.problems, *_complete(folder, options.layout or "")]
    for problem in problems:
        sys.stderr.write(f"headrace-experiment: {problem}\n")
    if summary.interrupted:
        path = shlex.quote(os.path.relpath(folder.path))
        sys.stderr.write(f"interrupted: continue with `headrace experiment resume {path}`\n")
        return 128 + summary.interrupted
    return 1 if summary.progress.failed or problems else 0


def _complete(folder: Folder, layout: str) -> List[str]:
    """Write the report and the metadata of the folder. Returns what went wrong."""
    from headrace.experiments.report.archive import complete
    from headrace.experiments.stats.optional import MissingExtra
    from headrace.experiments.store.folder import FolderError

    try:
        report = complete(str(folder.path), flux_cloud=layout == "flux-cloud")
    except FolderError as exc:
        return [str(exc)]
    except MissingExtra as exc:
        return [f"no report: {exc}"]
    sys.stderr.write(f"report: {os.path.relpath(report)}\n")
    return []


def _warn(text: str) -> None:
    sys.stderr.write(text + "\n")


class _Shown:
    """The line of progress on stderr."""

    def __init__(self, in_place: bool) -> None:
        self._in_place = in_place
        self._last = 0.0
        self._text = ""

    def show(self, progress: Progress) -> None:
        import time

        now = time.monotonic()
        finished = not progress.left and not progress.running
        if now - self._last < (_REDRAW if self._in_place else _LINE) and not finished:
            return
        self._last = now
        text = line(progress)
        if text != self._text:
            sys.stderr.write(f"\r\033[K{text}" if self._in_place else f"{text}\n")
            sys.stderr.flush()
            self._text = text

    def close(self) -> None:
        if self._in_place and self._text:
            sys.stderr.write("\n")


def line(progress: Progress) -> str:
    parts = [f"{progress.done}/{progress.planned} runs", f"{progress.running} running", f"{progress.failed} failed"]
    if progress.left and progress.seconds_left is not None:
        parts.append(f"about {_duration(progress.seconds_left)} left")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{max(1, whole)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
