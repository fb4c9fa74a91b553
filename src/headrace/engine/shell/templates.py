"""`{{name}}` templates in file names, arguments and environment values (flux-submit(1)).

Tags are replaced by properties of the job, of this node or of one task. Unknown tags are not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.formats.spec import jobid
from headrace.formats.spec import jobspec as specs
from headrace.formats.spec.idset import Idset

if TYPE_CHECKING:
    from headrace.engine.process.operations import Start

    from .layout import Layout

_TAG = re.compile(r"\{\{\s*([A-Za-z0-9_.]+)\s*\}\}")


def expand(text: str, lookup: Callable[[str], str | None]) -> str:
    """Replace every tag in `text` for which `lookup` returns a value."""
    if "{{" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        found = lookup(match[1])
        return match[0] if found is None else found

    return _TAG.sub(value, text)


def tags(text: str) -> set[str]:
    """The names of the tags in `text`."""
    return set(_TAG.findall(text)) if "{{" in text else set()


class Names(NamedTuple):
    """The properties to which tags refer. `ranks` are this node's tasks."""

    id: int
    f58: str
    name: str
    nnodes: int
    size: int
    tmpdir: str
    nodeid: int
    host: str
    broker_rank: int
    cores: Idset
    gpus: Idset
    ranks: Sequence[int]

    def lookup(self, tag: str, rank: int | None = None) -> str | None:
        """The value of `tag` for task `rank` (None: for the job). None if the tag must not be replaced."""
        head, dot, form = tag.partition(".")
        if dot and head in ("id", "jobid"):
            try:
                return jobid.encode(self.id, form)
            except ValueError:
                return None
        if head == "task" or tag == "taskid":
            return None if rank is None else self._of_task(tag, rank)
        if tag == "node.ncores":
            return str(len(self.cores))
        if tag == "node.resources":
            return f'{{"ncores":{len(self.cores)},"cores":"{self.cores}","gpus":"{self.gpus}"}}'
        return {
            "id": self.f58,
            "jobid": self.f58,
            "name": self.name,
            "nnodes": str(self.nnodes),
            "size": str(self.size),
            "ntasks": str(self.size),
            "tmpdir": self.tmpdir,
            "node.id": str(self.nodeid),
            "node.name": self.host,
            "node.broker_rank": str(self.broker_rank),
            "node.cores": str(self.cores),
            "node.gpus": str(self.gpus),
        }.get(tag)

    def _of_task(self, tag: str, rank: int) -> str | None:
        if tag in ("taskid", "task.id", "task.rank"):
            return str(rank)
        if tag in ("task.localid", "task.index"):
            return str(list(self.ranks).index(rank))
        return None


def names_of(op: Start, f58: str, tmpdir: str, placed: Layout) -> Names:
    """The properties of a job with its layout. `f58` is the job's id as shown to users."""
    return Names(
        op["id"],
        f58,
        specs.name(op["jobspec"]),
        op["nnodes"],
        placed.size,
        tmpdir,
        op["nodeid"],
        op["hosts"][op["nodeid"]] if op["nodeid"] < len(op["hosts"]) else "",
        op["rank"],
        placed.mine.cores,
        placed.mine.gpus,
        placed.ranks,
    )
