"""The host, cores and GPUs of a node, read from hwloc's XML (`lstopo --of xml`)."""

from __future__ import annotations

from typing import NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

from .os_error import reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Optional

# hwloc's backends for compute GPUs, and the names of their devices. Other backends (GL, DRM) report any display.
_BACKENDS = ("CUDA", "NVML", "OpenCL", "RSMI", "LevelZero")
_NAMES = ("cuda", "nvml", "opencl", "rsmi", "ze")
# The limit keeps recursion over the elements within Python's stack. Real topologies have far fewer levels.
_DEEPEST = 100


class HwlocError(ValueError):
    """Text that is not a hwloc topology; the message names the file."""


class Node(NamedTuple):
    """Cores and GPUs by their logical numbers, from 0 on; `host` is "" if the topology has no host name."""

    host: str
    cores: int
    gpus: int


def read(path: str) -> Node:
    """The node that the file at `path` describes. Raises HwlocError."""
    try:
        with open(path, "rb") as file:
            root = parse(file.read())
    except (OSError, HwlocError) as exc:
        raise HwlocError(f"{path}: {reason(exc)}") from None
    objects = list(root.iter("object"))
    kinds = [found.get("type") for found in objects]
    cores = kinds.count("Core") or kinds.count("PU")
    gpus = len(set(_gpus(root)))
    if not cores:
        raise HwlocError(f"{path}: no cores in it: is it an hwloc topology?")
    hosts = [info.get("value") for found in objects for info in found.iter("info") if info.get("name") == "HostName"]
    return Node(hosts[0] or "" if hosts else "", cores, gpus)


def parse(text: bytes) -> ElementTree.Element:
    """The outermost element of XML. Entities, which can expand without bound, are refused.

    Raises HwlocError.
    """
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate()
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise HwlocError(f"line {parser.CurrentLineNumber}: more than {_DEEPEST} levels")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse(*_: object) -> None:
        raise HwlocError(f"line {parser.CurrentLineNumber}: entities are not accepted")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, ValueError, LookupError) as exc:
        raise exc if isinstance(exc, HwlocError) else HwlocError(f"not well-formed XML: {exc}") from None
    return builder.close()


def _gpus(element: ElementTree.Element, device: Optional[ElementTree.Element] = None) -> Iterator[ElementTree.Element]:
    """The bus devices that a backend reports as a GPU, once for each backend that reports the device."""
    for child in element.findall("object"):
        kind = child.get("type")
        if kind == "OSDev" and _is_gpu(child):
            yield child if device is None else device
        yield from _gpus(child, child if kind == "PCIDev" else device)


def _is_gpu(device: ElementTree.Element) -> bool:
    backend = {info.get("name"): info.get("value") for info in device.findall("info")}.get("Backend")
    return backend in _BACKENDS if backend else str(device.get("name")).startswith(_NAMES)
