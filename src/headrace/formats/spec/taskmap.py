"""Task maps (RFC 34): which task of a job runs on which of its nodes.

A map is stored as the blocks `(nodeid, nnodes, ppn, repeat)` of RFC 34. So a million tasks that are assigned cyclically
to thousands of nodes are a few numbers, and a look-up is arithmetic on blocks.
"""

from __future__ import annotations

import json
import re
from typing import Any, Iterable, List, Optional, Sequence, Tuple, Union

from headrace.formats.spec.idset import MAX_ID, Idset, IdsetError

Block = Tuple[int, int, int, int]

# The longest value that a PMI-1 server accepts (RFC 13). A client that gets an empty mapping computes its own.
PMI_VALUE_LIMIT = 1024

_PMI = re.compile(r"\(vector(?:,\([0-9]{1,8},[0-9]{1,8},[0-9]{1,8}\))*\)\Z", re.ASCII)
_PMI_BLOCK = re.compile(r"\(([0-9]+),([0-9]+),([0-9]+)\)", re.ASCII)


class TaskMapError(ValueError):
    """Invalid text or object for a task map (RFC 34), or a scheme that does not fit the job."""


class TaskMap:
    """An immutable task map.

    Without blocks, the map is unknown (RFC 34's `[]`) and has no nodes and no tasks.
    """

    __slots__ = ("blocks", "nnodes", "ntasks")

    blocks: Tuple[Block, ...]
    nnodes: int
    """One more than the largest node id."""
    ntasks: int

    def __init__(self, blocks: Iterable[Sequence[int]] = ()) -> None:
        """Raises TaskMapError for a block that is not four integers, or for more tasks than an idset can have."""
        checked: List[Block] = []
        for block in blocks:
            if len(block) != 4 or any(type(number) is not int for number in block):
                raise TaskMapError(f"block {list(block)}: must be the four integers nodeid, nnodes, ppn, repeat")
            nodeid, nnodes, ppn, repeat = block
            if nodeid < 0 or min(nnodes, ppn, repeat) < 1:
                raise TaskMapError(f"block {list(block)}: nodeid must be 0 or more, the others 1 or more")
            checked.append((nodeid, nnodes, ppn, repeat))
        self.blocks = tuple(checked)
        self.nnodes = max((nodeid + nnodes for nodeid, nnodes, _, _ in checked), default=0)
        self.ntasks = sum(nnodes * ppn * repeat for _, nnodes, ppn, repeat in checked)
        if self.ntasks > MAX_ID + 1 or self.nnodes > MAX_ID + 1:
            raise TaskMapError(f"{self.ntasks} tasks on {self.nnodes} nodes: no more than {MAX_ID + 1} of each")

    @classmethod
    def decode(cls, source: Union[str, List[Any], object]) -> TaskMap:
        """Return the map in any form: JSON text, an array or object, raw `0-1;2-3`, PMI `(vector,…)`.

        Raises TaskMapError.
        """
        if isinstance(source, str):
            if source[:1] in ("[", "{"):
                try:
                    source = json.loads(source)
                except (ValueError, RecursionError) as exc:
                    raise TaskMapError(f"not a JSON task map: {exc}") from None
            elif source[:1] == "(":
                return cls(_parse_pmi(source))
            else:
                return cls.from_nodes(_parse_raw(source))
        if isinstance(source, dict):
            if source.get("version") != 1:
                raise TaskMapError(f"unknown version {source.get('version')!r}: expected 1")
            source = source.get("map")
        if not isinstance(source, list) or not all(isinstance(block, list) for block in source):
            raise TaskMapError("must be an array of blocks [nodeid,nnodes,ppn,repeat]")
        return cls(source)

    @classmethod
    def from_nodes(cls, tasks: Sequence[Idset]) -> TaskMap:
        """Return the map of nodes 0, 1, … with these tasks.

        Raises TaskMapError unless each task is on exactly one node.
        """
        total = sum(map(len, tasks))
        runs = sorted((lo, hi, node) for node, ids in enumerate(tasks) for lo, hi in ids.ranges())
        blocks: List[Block] = []
        expected = 0
        for lo, hi, node in runs:
            if lo != expected:
                raise TaskMapError(f"task {expected} is on no node" if lo > expected else f"task {lo} is on two nodes")
            _append(blocks, (node, 1, hi - lo + 1, 1))
            expected = hi + 1
        if expected != total:
            raise TaskMapError(f"{total} tasks are given, but task {expected} is on no node")
        return cls(blocks)

    @classmethod
    def block(cls, counts: Sequence[int]) -> TaskMap:
        """Return the map that fills one node after another with `counts` tasks.

        Raises TaskMapError for a negative count.
        """
        blocks: List[Block] = []
        for node, count in enumerate(_check_counts(counts)):
            if count:
                _append(blocks, (node, 1, count, 1))
        return cls(blocks)

    @classmethod
    def cyclic(cls, counts: Sequence[int], stride: int = 1) -> TaskMap:
        """Return the map that assigns `stride` tasks to each node in turn, until each has its `counts`.

        Raises TaskMapError for a negative count or a stride below 1.
        """
        if stride < 1:
            raise TaskMapError(f"cyclic: the stride must be 1 or more, not {stride}")
        remaining = list(_check_counts(counts))
        blocks: List[Block] = []
        while any(remaining):
            dealt: List[Block] = []
            for node, count in enumerate(remaining):
                if count:
                    _append(dealt, (node, 1, min(stride, count), 1))
            # Until the node with the fewest remaining tasks is full, every turn is the same.
            smallest = min(count for count in remaining if count)
            turns = max(1, smallest // stride)
            if len(dealt) == 1:
                nodeid, nnodes, ppn, repeat = dealt[0]
                _append(blocks, (nodeid, nnodes, ppn, repeat * turns))
            else:
                for block in dealt * turns:
                    _append(blocks, block)
            remaining = [max(0, count - stride * turns) for count in remaining]
        return cls(blocks)

    @classmethod
    def manual(cls, source: Union[str, List[Any], object], counts: Sequence[int]) -> TaskMap:
        """Return a user's map, in any form.

        Raises TaskMapError unless it has the nodes of the job and the same total number of tasks. A node may have more
        or fewer tasks than in `counts`, but at least one.
        """
        given = cls.decode(source)
        if given.ntasks != sum(counts) or given.nnodes != len(counts):
            raise TaskMapError(
                f"the map has {given.ntasks} tasks on {given.nnodes} nodes, the job {sum(counts)} on {len(counts)}"
            )
        for node, count in enumerate(counts):
            if count and not given.node_ntasks(node):
                raise TaskMapError(f"the map puts no task on node {node}")
        return given

    def node_tasks(self, node: int) -> Idset:
        """Return the tasks on a node; the empty set for a node outside the map."""
        runs: List[Tuple[int, int]] = []
        start = 0
        for nodeid, nnodes, ppn, repeat in self.blocks:
            if nodeid <= node < nodeid + nnodes:
                first = start + (node - nodeid) * ppn
                runs.extend((lo, lo + ppn - 1) for lo in range(first, first + nnodes * ppn * repeat, nnodes * ppn))
            start += nnodes * ppn * repeat
        return Idset.from_ranges(runs)

    def node_ntasks(self, node: int) -> int:
        """Return the number of tasks on a node."""
        return sum(ppn * repeat for first, nnodes, ppn, repeat in self.blocks if first <= node < first + nnodes)

    def node_of(self, task: int) -> int:
        """Return the node of a task. Raises TaskMapError for a task outside the map."""
        remaining = task
        for nodeid, nnodes, ppn, repeat in self.blocks if task >= 0 else ():
            if remaining < nnodes * ppn * repeat:
                return nodeid + remaining % (nnodes * ppn) // ppn
            remaining -= nnodes * ppn * repeat
        raise TaskMapError(f"no task {task}: the map has {self.ntasks}")

    def encode(self) -> str:
        """Return the compact JSON array, such as `[[0,2,1,1]]`."""
        return json.dumps(self.blocks, separators=(",", ":"))

    def to_obj(self) -> Any:
        """Return the object of RFC 34 that carries a map in messages and eventlogs."""
        return {"version": 1, "map": [list(block) for block in self.blocks]}

    def raw(self) -> str:
        """Return the raw form: each node's tasks as an idset, separated by semicolons."""
        return ";".join(self.node_tasks(node).encode() for node in range(self.nnodes))

    def pmi_mapping(self, limit: Optional[int] = PMI_VALUE_LIMIT) -> str:
        """Return PMI_process_mapping (RFC 13), `(vector,(0,2,1))`.

        It is empty if the text exceeds `limit` or the map is unknown.
        """
        parts: List[str] = []
        length = len("(vector)")
        for nodeid, nnodes, ppn, repeat in self.blocks:
            part = f",({nodeid},{nnodes},{ppn})"
            length += len(part) * repeat
            if limit is not None and length > limit:
                return ""
            parts.append(part * repeat)
        return f"(vector{''.join(parts)})" if parts else ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskMap) and self.blocks == other.blocks

    def __hash__(self) -> int:
        return hash(self.blocks)

    def __repr__(self) -> str:
        return f"TaskMap({list(self.blocks)})"


def _append(blocks: List[Block], block: Block) -> None:
    """Append a block of the next tasks, merged with the last block if that results in the same map."""
    nodeid, nnodes, ppn, repeat = block
    if blocks and repeat == 1:
        last_node, last_nnodes, last_ppn, last_repeat = blocks[-1]
        if last_repeat == 1 and nnodes == last_nnodes == 1 and nodeid == last_node:
            blocks[-1] = (nodeid, 1, last_ppn + ppn, 1)
            return
        if last_repeat == 1 and nodeid == last_node + last_nnodes and ppn == last_ppn:
            blocks[-1] = (last_node, last_nnodes + nnodes, ppn, 1)
            _fold(blocks)
            return
    blocks.append(block)
    _fold(blocks)


def _fold(blocks: List[Block]) -> None:
    """Merge the last block with the block before it if it repeats that block."""
    if len(blocks) > 1 and blocks[-1][:3] == blocks[-2][:3]:
        blocks[-2:] = [(*blocks[-1][:3], blocks[-2][3] + blocks[-1][3])]


def _check_counts(counts: Sequence[int]) -> Sequence[int]:
    for node, count in enumerate(counts):
        if count < 0:
            raise TaskMapError(f"node {node}: {count} tasks")
    return counts


def _parse_raw(text: str) -> List[Idset]:
    if not text:
        raise TaskMapError("an empty text is not a task map")
    try:
        return [Idset.parse(part) for part in text.split(";")]
    except IdsetError as exc:
        raise TaskMapError(f"raw task map '{text}': {exc}") from None


def _parse_pmi(text: str) -> List[Block]:
    if not _PMI.match(text):
        raise TaskMapError(f"'{text}' is not a PMI mapping: expected (vector,(nodeid,nnodes,ppn),…)")
    blocks: List[Block] = []
    for nodeid, nnodes, ppn in _PMI_BLOCK.findall(text):
        _append(blocks, (int(nodeid), int(nnodes), int(ppn), 1))
    return blocks
