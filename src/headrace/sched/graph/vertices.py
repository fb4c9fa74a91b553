"""Vertices as parallel columns: their attributes, independent of hierarchies.

A machine of 16,384 nodes has about a million vertices, so a vertex is only a row number: one object for each vertex
would need more memory than all the columns. Names are computed from basename and id; only names that do not follow that
rule are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MAX_SIZE = 2**62
# Ranks, and ids of cores and GPUs, become bits of integers; the limit keeps a wrong value from taking gigabytes.
MAX_BITS = 2**24
MAX_VERTICES = 2**24
_AS_BITS = frozenset({"core", "gpu"})


class GraphError(ValueError):
    """An invalid graph or change to one; the message names the vertex and what is wrong with it."""


class Vertices:
    """Columns by vertex, shared by all hierarchies of a graph.

    `type`, `basename`, `id` (-1 for none), `size` (units), `rank` (execution target, -1 for none), `uniq` (the number
    in the source document, which writers show), `up`.

    Sparse columns: `unit`, `names` (names other than basename plus id), `properties`, `elsewhere` (paths in hierarchies
    that were not loaded).
    """

    __slots__ = (
        "_vacant",
        "basename",
        "edges",
        "elsewhere",
        "id",
        "names",
        "properties",
        "rank",
        "size",
        "type",
        "uniq",
        "unit",
        "up",
    )

    def __init__(self) -> None:
        self.type: list[str] = []
        self.basename: list[str] = []
        self.id: list[int] = []
        self.size: list[int] = []
        self.rank: list[int] = []
        self.uniq: list[int] = []
        self.up = bytearray()
        self.unit: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.properties: dict[int, dict[str, str]] = {}
        self.elsewhere: dict[int, dict[str, str]] = {}
        # Edges outside the hierarchies: (subsystem, relation, source, target).
        self.edges: list[tuple[str, str, int, int]] = []
        # Rows of removed vertices, which are reused.
        self._vacant: list[int] = []

    def __len__(self) -> int:
        """The number of rows, including those of removed vertices."""
        return len(self.type)

    @property
    def count(self) -> int:
        """The number of vertices."""
        return len(self.type) - len(self._vacant)

    def vertices(self) -> Iterable[int]:
        """All vertices, by number."""
        if not self._vacant:
            return range(len(self.type))
        return [v for v, kind in enumerate(self.type) if kind]

    def _row(
        self,
        type: str,
        basename: str | None,
        id: int,
        size: int,
        rank: int,
        unit: str,
        name: str | None,
        uniq: int | None,
        properties: Mapping[str, str] | None,
    ) -> int:
        """Fill in a row, the last or a vacant one; returns its number. Raises GraphError."""
        if not 0 <= size <= MAX_SIZE:
            raise GraphError(f"{type}{id}: size {size} is not between 0 and 2^62")
        if not type:
            raise GraphError(f"{name or basename or 'vertex'}: has no type")
        if not -1 <= id < 2**63 or rank < -1:
            raise GraphError(f"{type}{id}, rank {rank}: ids and ranks must be -1 (none) or more, and fit 63 bits")
        if id < 0 and type in _AS_BITS:
            raise GraphError(f"{name or type}: has no number; cores and GPUs need one, as R names them by it")
        if name is not None and "/" in name:
            raise GraphError(f"{name!r}: a name must not contain '/', which separates names in paths")
        if rank >= MAX_BITS or (id >= MAX_BITS and type in _AS_BITS):
            raise GraphError(f"{type}{id}, rank {rank}: ranks and ids of cores and GPUs must be below {MAX_BITS}")
        if self._vacant:
            v = self._vacant.pop()
            self.type[v] = type
            self.basename[v] = type if basename is None else basename
            self.id[v], self.size[v], self.rank[v] = id, size, rank
            self.uniq[v] = v if uniq is None else uniq
        else:
            v = len(self.type)
            if v == MAX_VERTICES:
                raise GraphError(f"more than {MAX_VERTICES} vertices")
            self.type.append(type)
            self.basename.append(type if basename is None else basename)
            self.id.append(id)
            self.size.append(size)
            self.rank.append(rank)
            self.uniq.append(v if uniq is None else uniq)
            self.up.append(1)
        if unit:
            self.unit[v] = unit
        if name is not None and name != self.name(v):
            self.names[v] = name
        if properties:
            self.properties[v] = dict(properties)
        return v

    def _empty(self, v: int) -> None:
        """Empty the row of a removed vertex."""
        self.type[v] = self.basename[v] = ""
        self.id[v] = self.rank[v] = -1
        self.size[v], self.up[v] = 0, 1
        for column in (self.unit, self.names, self.properties, self.elsewhere):
            column.pop(v, None)
        self._vacant.append(v)

    def name(self, v: int) -> str:
        given = self.names.get(v)
        if given is not None:
            return given
        number = self.id[v]
        return self.basename[v] if number < 0 else f"{self.basename[v]}{number}"

    def units(self, kind: str) -> frozenset[str]:
        """The units in which vertices of a type are counted ("" for no unit); empty for an unknown type."""
        found = [unit for v, unit in self.unit.items() if self.type[v] == kind]
        return frozenset(found if len(found) == self.type.count(kind) else [*found, ""])
