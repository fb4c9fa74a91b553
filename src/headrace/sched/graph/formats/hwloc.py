"""Graphs from hwloc's XML (`lstopo --of xml`), version 1 or 2: a cluster of the one node described.

Fluxion loads the XML through hwloc, which changes the topology, and numbers the remaining objects. This reader makes
the same changes. Version 1 has memory between a machine and its cores; it becomes a leaf beside them, as in version 2.
Caches and groups are removed where they contain the same as their parent or their only child. Disallowed processors are
removed, and then every object without children. Objects are numbered within their level, whatever the system's numbers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from xml.etree import ElementTree

from headrace.formats.spec import hwloc
from headrace.sched.graph.model import Graph, GraphError

_TYPES = {
    "Machine": "node",
    "Group": "group",
    "NUMANode": "numanode",
    "Package": "socket",
    "L1Cache": "cache",
    "L2Cache": "cache",
    "L3Cache": "cache",
    "Core": "core",
    "PU": "pu",
}
_CACHES = {f"L{n}Cache" for n in range(1, 6)} | {f"L{n}iCache" for n in range(1, 4)}
_NORMAL = {"Machine", "Group", "Package", "Die", "Core", "PU"} | _CACHES
_MEMORY = {"NUMANode", "MemCache"}
_IO = {"Bridge", "PCIDev", "OSDev"}
_OLD_NAMES = {"System": "Machine", "Socket": "Package", "Node": "NUMANode", "Cache": "Cache"}
# Of two levels with the same contents, the one with the lower number here is removed; other kinds always stay.
_KEPT_LONGER = {"Group": 0, **{kind: 1 if "i" in kind else 2 for kind in _CACHES}}
# hwloc's numbers of device types.
_BLOCK, _GPU, _DMA, _COPROCESSOR = 0, 1, 4, 5
_DIGITS = re.compile(r"(\d+)$")
_GB = 1_000_000
# A topology with groups may have any number of levels, since each group has its own `depth`.
_MOST_LEVELS = 128


class _Object:
    """An object of a topology.

    `below` are its normal children, which form levels; `memory` and `io` are the other children.
    """

    __slots__ = ("above", "below", "depth", "firm", "index", "info", "io", "kind", "memory", "name", "number", "what")

    def __init__(self, kind: str, element: ElementTree.Element | None = None) -> None:
        self.kind = kind
        self.above: _Object | None = None
        self.below: list[_Object] = []
        self.memory: list[_Object] = []
        self.io: list[_Object] = []
        self.index = 0
        attributes = {} if element is None else element.attrib
        self.name = attributes.get("name", "")
        # The system's number of a processor.
        self.number = _number(attributes, "os_index", kind) if kind == "PU" else 0
        # Groups of one level have the same depth.
        self.depth = attributes.get("depth", "") if kind == "Group" else ""
        self.firm = attributes.get("dont_merge") == "1"
        # The size of a cache in bytes, or the type of a device.
        self.what = 0
        if kind in _CACHES:
            self.what = _number(attributes, "cache_size", kind)
        elif kind == "OSDev":
            self.what = _number(attributes, "osdev_type", kind)
        found = [] if element is None else element.findall("info")
        self.info = {info.get("name", ""): info.get("value", "") for info in found}

    def children(self) -> Iterator[_Object]:
        """All children in hwloc's order."""
        yield from self.below
        yield from self.memory
        yield from self.io


def _number(attributes: dict[str, str], name: str, kind: str) -> int:
    text = attributes.get(name, "0")
    if not text.isdecimal() or len(text) > 19:
        raise GraphError(f"hwloc: {kind}: {name} must be a number from 0 on, not {text[:40]!r}")
    return int(text)


def read(text: str | bytes, allow: Iterable[str] = ()) -> Graph:
    """The graph of an hwloc topology, with the types in `allow` (none: all types). Raises GraphError.

    In `allow`, caches are named L1cache, L2cache and L3cache.
    """
    try:
        document = hwloc.parse(text.encode() if isinstance(text, str) else text)
    except hwloc.HwlocError as exc:
        raise GraphError(f"hwloc: {exc}") from None
    machine = _topology(document)
    allowed = frozenset(allow)
    graph = Graph()
    _add(graph, machine, graph.add("cluster", id=0), lambda kind: not allowed or kind in allowed)
    return graph.finish()


def _topology(document: ElementTree.Element) -> _Object:
    """The topology as hwloc changes it when loading, with its objects numbered."""
    version = document.get("version", "1")
    if document.tag != "topology":
        raise GraphError(f"hwloc: the outermost element must be topology, not {document.tag}")
    if not version.startswith(("1", "2")):
        raise GraphError(f"hwloc: version {version} of the format is not supported (supported: 1, 2)")
    elements = document.findall("object")
    kinds = [element.get("type", "") for element in elements]
    if len(kinds) != 1 or _OLD_NAMES.get(kinds[0], kinds[0]) != "Machine":
        raise GraphError(f"hwloc: the outermost object must be one Machine, not {', '.join(kinds) or 'nothing'}")
    machine = _build(elements[0])
    if version.startswith("1"):
        _move_memory(machine)
        if not any(found.kind == "NUMANode" for found in _each(machine)):
            # Version 1 has no NUMANode object for a machine that is not divided into NUMA nodes.
            machine.memory.append(_Object("NUMANode"))
    allowed = elements[0].get("allowed_cpuset")
    if allowed is not None:
        bits = _bits(allowed)
        _restrict(machine, lambda number: bool(bits >> number & 1))
    if not any(found.kind == "PU" for found in _each(machine)):
        raise GraphError("hwloc: the topology has no PU (processing unit)")
    levels = _merge(_levels(machine))
    counts = {kind: 0 for kind in _MEMORY | _IO}
    for level in levels:
        for index, found in enumerate(level):
            found.index = index
    for found in _each(machine):
        if found.kind in counts:
            found.index = counts[found.kind]
            counts[found.kind] += 1
    return machine


def _bits(text: str) -> int:
    """A set of processors in hwloc's notation.

    It has words of 32 bits, highest first; `0xf...f` stands for all higher bits.
    """
    words = text.split(",")
    try:
        if words[0] == "0xf...f":
            return -1 << 32 * (len(words) - 1) | (_bits(",".join(words[1:])) if words[1:] else 0)
        return sum(int(word or "0", 16) << 32 * i for i, word in enumerate(reversed(words)))
    except ValueError:
        raise GraphError(f"hwloc: {text[:40]!r} is not a set of processors") from None


def _build(element: ElementTree.Element) -> _Object:
    kind = element.get("type", "")
    kind = _OLD_NAMES.get(kind, kind)
    if kind == "Cache":
        kind = f"L{element.get('depth', '')}{'i' if element.get('cache_type') == '2' else ''}Cache"
    if kind not in _NORMAL and kind not in _MEMORY and kind not in _IO:
        raise GraphError(f"hwloc: object of unknown type {element.get('type')!r}")
    found = _Object(kind, element)
    for child in element.findall("object"):
        if child.get("type") == "Misc":
            continue
        made = _build(child)
        made.above = found
        if made.kind in _NORMAL:
            found.below.append(made)
        elif made.kind in _MEMORY:
            found.memory.append(made)
        elif made.what != _DMA:
            found.io.append(made)
    return found


def _each(top: _Object) -> Iterator[_Object]:
    """An object and all objects below it, in the order in which memory and devices are numbered."""
    for child in top.below:
        yield from _each(child)
    for child in (*top.memory, *top.io):
        yield from _each(child)
    yield top


def _pus(top: _Object) -> list[int]:
    return [found.number for found in _each(top) if found.kind == "PU"]


def _move_memory(top: _Object) -> None:
    """Make memory a leaf where, as in version 1, it contains other objects.

    Memory with all processors of its parent stays there. Other memory becomes a leaf of a new group, together with its
    contents.
    """
    for child in [*top.below, *top.memory]:
        _move_memory(child)
    memory, top.memory = top.memory, []
    whole = _pus(top) + [number for node in memory for number in _pus(node)]
    for node in memory:
        inside, devices, nodes = node.below, node.io, node.memory
        place = top
        if len(_pus(node)) != len(whole):
            place = _Object("Group")
            place.above = top
            top.below.append(place)
        node.below, node.io, node.memory = [], [], []
        node.above = place
        place.below += inside
        place.io = devices + place.io
        place.memory += [*nodes, node]
        for child in (*inside, *devices, *nodes):
            child.above = place
    if memory:
        top.below.sort(key=lambda child: min(_pus(child), default=sys.maxsize))


def _restrict(top: _Object, allowed: Callable[[int], bool]) -> None:
    for child in top.below:
        _restrict(child, allowed)
    top.below = [
        child
        for child in top.below
        if (allowed(child.number) if child.kind == "PU" else child.below or child.memory or child.io)
    ]


def _levels(machine: _Object) -> list[list[_Object]]:
    """The normal objects by level, from the machine down to the processors, each level of one kind."""
    holds: dict[int, frozenset[tuple[str, str]]] = {}

    def note(top: _Object) -> frozenset[tuple[str, str]]:
        kinds: frozenset[tuple[str, str]] = frozenset()
        for child in top.below:
            kinds |= note(child) | {(child.kind, child.depth)}
        holds[id(top)] = kinds
        return kinds

    note(machine)
    levels = [[machine]]
    current = machine.below
    while current:
        rest = [found for found in current if found.kind != "PU"] or current
        top = rest[0]
        for other in rest[1:]:
            if (top.kind, top.depth) in holds[id(other)] and (top.kind, top.depth) != (other.kind, other.depth):
                top = other
        level: list[_Object] = []
        after: list[_Object] = []
        for found in current:
            if (found.kind, found.depth) == (top.kind, top.depth):
                level.append(found)
                after += found.below
            else:
                after.append(found)
        levels.append(level)
        if len(levels) > _MOST_LEVELS:
            raise GraphError(f"hwloc: more than {_MOST_LEVELS} levels of different kinds")
        current = after
    return levels


def _merge(levels: list[list[_Object]]) -> list[list[_Object]]:
    """Merge neighbouring levels of caches and groups whose objects correspond one to one.

    They correspond if each lower object is the only child of its upper one.
    """
    for i in range(len(levels) - 1, 0, -1):
        upper, lower = levels[i - 1], levels[i]
        if len(upper) != len(lower) or any(
            low.above is not up or len(up.below) != 1 for up, low in zip(upper, lower, strict=True)
        ):
            continue
        if lower[0].kind == "PU" and any(up.memory for up in upper):
            continue
        above, below = (_KEPT_LONGER.get(level[0].kind) for level in (upper, lower))
        if any(found.firm for found in upper):
            above = None
        if any(found.firm for found in lower):
            below = None
        if below is not None and (above is None or below <= above):
            for up, low in zip(upper, lower, strict=True):
                up.below = low.below
                up.memory += low.memory
                up.io += low.io
                for child in low.children():
                    child.above = up
            del levels[i]
        elif above is not None:
            for up, low in zip(upper, lower, strict=True):
                low.memory = up.memory + low.memory
                low.io = up.io + low.io
                for child in (*up.memory, *up.io):
                    child.above = low
                low.above = up.above
                assert up.above is not None
                siblings = up.above.below
                siblings[siblings.index(up)] = low
            del levels[i - 1]
    return levels


def _add(graph: Graph, found: _Object, parent: int, taken: Callable[[str], bool]) -> None:
    """Add an object to the graph if its type is selected, then all objects below it."""
    kind = found.kind
    type = _TYPES.get(kind, "")
    if kind == "OSDev":
        made = _device(graph, found, parent, taken)
    elif kind == "Machine":
        host = found.info.get("HostName", "")
        made = _node(graph, host, parent) if host and taken("node") else -1
    elif type == "cache":
        made = (
            graph.add(type, parent, basename=f"{kind[:2]}cache", id=found.index, size=found.what // 1024)
            if taken(f"{kind[:2]}cache")
            else -1
        )
    else:
        made = graph.add(type, parent, id=found.index) if type and taken(type) else -1
    for child in found.children():
        _add(graph, child, parent if made < 0 else made, taken)


def _node(graph: Graph, host: str, parent: int) -> int:
    digits = _DIGITS.search(host)
    number = int(digits.group(1)) if digits else -1
    if number >= 2**63:
        raise GraphError(f"hwloc: host {host!r}: its number does not fit 63 bits")
    basename = host[: digits.start()] or host if digits else host
    # Nodes are ranked in order, as in the graph of a recipe.
    return graph.add("node", parent, basename=basename, id=number, name=host, rank=graph.type.count("node"))


def _device(graph: Graph, found: _Object, parent: int, taken: Callable[[str], bool]) -> int:
    """Add a device; a GPU's id is the last number in its driver's name (cuda0, rsmi0, opencl0d0)."""
    name = found.name
    if found.what == _COPROCESSOR or (found.what == _GPU and name.startswith("rsmi")):
        numbered = re.match(r"(?:cuda|rsmi|opencl\d*d)(\d{0,9})", name)
        index = int(numbered.group(1) or 0) if numbered else found.index
        return graph.add("gpu", parent, id=index) if taken("gpu") else -1
    if found.what != _BLOCK or not taken("storage"):
        return -1
    size = found.info.get("Size", "")
    if not re.match(r"[1-9]", size) or not size.isdecimal() or len(size) > 18:
        raise GraphError(
            f"hwloc: storage {name!r}: Size must be a number of kB, not {size[:40]!r}; or leave out storage"
        )
    properties = {"LinuxDeviceID": found.info.get("LinuxDeviceID", "-1")}
    return graph.add("storage", parent, id=found.index, size=int(size) // _GB, properties=properties)
