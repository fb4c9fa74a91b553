"""Columns of the commands that list jobs: the format of `-o`, and values that are safe for a terminal."""

from __future__ import annotations

from headrace.cli.common.named_formats import printable
from headrace.wire.query import job_info
from headrace.wire.query.format import Format

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from headrace.wire.query.job_info import JobInfo


def columns(text: str) -> Format:
    """Parse a format string with the fields of jobs. Raises FormatError."""
    headings = dict(job_info.HEADINGS)
    if "instance." in text:
        from headrace.wire.query import instance_info

        headings.update(instance_info.HEADINGS)
    layout = Format(text, headings, job_info.OPEN_FIELDS)
    for name in layout.names:
        if name.startswith("annotations."):
            # Annotations are free-form, so the heading is the annotation's own name.
            headings.setdefault(name, name[len("annotations.") :].upper())
    return layout


def ask_instances(names: Iterable[str], jobs: Iterable[JobInfo]) -> None:
    """Fill in the fields `instance.*` of jobs that are instances, if `names` has such a field."""
    if any(name.startswith("instance.") for name in names):
        from headrace.wire.query import instance_info

        for job in jobs:
            job.instance = instance_info.ask(job)


def visible(job: JobInfo) -> Callable[[str], Any]:
    """A function like `job.get` that passes text through `printable`, because users choose job names."""

    def get(name: str) -> Any:
        value = job.get(name)
        # Color fields are escape sequences for the terminal.
        return printable(value) if isinstance(value, str) and not name.startswith("color") else value

    return get
