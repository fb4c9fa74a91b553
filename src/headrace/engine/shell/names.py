"""What the tags of `{{name}}` templates stand for: facts of the job, of this node and of one task (flux-submit(1))."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.formats.spec import jobid
from headrace.formats.spec.idset import Idset


class Names(NamedTuple):
    """The facts. `ranks` are this node's tasks; a `size` of 0 means the tasks are not laid out yet."""

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
        """The value of `tag` for task `rank` (None: for the job); None when it has none, and stays as written."""
        head, dot, form = tag.partition(".")
        if dot and head in ("id", "jobid"):
            try:
                return jobid.encode(self.id, form)
            except ValueError:
                return None
        if head == "task" or tag == "taskid":
            return None if rank is None else self._of_task(tag, rank)
        if tag in ("node.ncores", "node.resources"):
            number = len(self.cores)
            whole = f'{{"ncores":{number},"cores":"{self.cores}","gpus":"{self.gpus}"}}'
            return str(number) if tag == "node.ncores" else whole
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
