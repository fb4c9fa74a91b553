"""What a job was given: places on nodes, each for one pod."""

from __future__ import annotations

from msgspec import Struct

from . import resources


class Place(Struct, eq=False):
    """Room for a pod of a set on a node of a queue, which stands at `index` in the job's nodes; `pod` is the uid of the
    pod that has it, "" while there is none, and `beyond` what that has of the node beside `amounts`, as it was resized.
    The pods of its set waited for it `since` that time.
    """

    index: int
    node: str
    set: str
    hold: int
    amounts: resources.Amounts
    queue: str
    since: float = 0
    pod: str = ""
    beyond: resources.Amounts = {}
