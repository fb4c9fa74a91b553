"""This node's hwloc topology as XML, which clients use to bind processes.

The topology is read from the file in FLUX_HWLOC_XMLFILE, or made from the discovered resources. In the latter case it
has the machine, one NUMA node with its memory, the cores and their hardware threads, but no packages, caches or
devices.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from xml.sax.saxutils import quoteattr

from headrace.engine.broker.discovery import NodeResources, bindable_cpus, discover
from headrace.engine.broker.module.context import RpcError
from headrace.formats.spec import hwloc
from headrace.formats.spec.os_error import reason


def xml(unrestricted: bool, file: str) -> str:
    """The topology in `file`, or of this node if `file` is "".

    The topology of this node has the CPUs that the broker is bound to, or, if `unrestricted`, could be bound to. Raises
    RpcError if the file is invalid.
    """
    if not file:
        return made_of(discover(affinity=bindable_cpus() if unrestricted else None), socket.gethostname())
    try:
        with open(file, "rb") as handle:
            data = handle.read()
        hwloc.parse(data)
        return data.decode()
    except (OSError, ValueError) as exc:
        number = exc.errno if isinstance(exc, OSError) else None
        raise RpcError(number or errno.EINVAL, f"FLUX_HWLOC_XMLFILE={file}: {reason(exc)}") from None


def made_of(found: NodeResources, host: str) -> str:
    """The XML of hwloc 2 for a node with this host name."""
    everything = _bits(cpu for cpus in found.core_cpus for cpu in cpus)
    sets = f'cpuset="{everything}" complete_cpuset="{everything}" allowed_cpuset="{everything}"'
    nodes = 'nodeset="0x00000001" complete_nodeset="0x00000001" allowed_nodeset="0x00000001"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
        '<topology version="2.0">',
        f'  <object type="Machine" os_index="0" {sets} {nodes} gp_index="1">',
        f'    <info name="HostName" value={quoteattr(host)}/>',
        f'    <object type="NUMANode" os_index="0" {_sets(everything)} gp_index="2" local_memory="{found.memory}"/>',
    ]
    index = 3
    for number, cpus in enumerate(found.core_cpus):
        lines.append(f'    <object type="Core" os_index="{number}" {_sets(_bits(cpus))} gp_index="{index}">')
        for offset, cpu in enumerate(cpus, 1):
            one = _sets(_bits([cpu]))
            lines.append(f'      <object type="PU" os_index="{cpu}" {one} gp_index="{index + offset}"/>')
        lines.append("    </object>")
        index += 1 + len(cpus)
    return "\n".join([*lines, "  </object>", "</topology>", ""])


def _sets(cpus: str) -> str:
    return f'cpuset="{cpus}" complete_cpuset="{cpus}" nodeset="0x00000001" complete_nodeset="0x00000001"'


def _bits(cpus: Iterable[int]) -> str:
    """CPU numbers in hwloc's format of a set: 32-bit words in hexadecimal, highest first."""
    bits = sum(1 << cpu for cpu in cpus)
    words = [bits >> shift & 0xFFFFFFFF for shift in range(0, max(bits.bit_length(), 1), 32)]
    return ",".join(f"0x{word:08x}" for word in reversed(words))
