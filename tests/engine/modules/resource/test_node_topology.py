"""A node's topology as hwloc's XML: made of what discovery found, or read from a file."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from headrace.engine.broker.discovery import NodeResources
from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.resource import node_topology
from headrace.formats.spec import hwloc
from headrace.formats.spec.idset import Idset


def found(*core_cpus: tuple[int, ...]) -> NodeResources:
    return NodeResources(Idset(range(len(core_cpus))), Idset(), 1 << 30, core_cpus)


def test_what_is_made_of_a_node_reads_back_as_that_node(tmp_path: Path) -> None:
    path = tmp_path / "0.xml"
    path.write_text(node_topology.made_of(found((0, 4), (1, 5), (2, 6)), "node<7>"))
    assert hwloc.read(str(path)) == hwloc.Node("node<7>", 3, 0)


def test_cores_hold_their_threads_and_sets_name_their_cpus() -> None:
    root = hwloc.parse(node_topology.made_of(found((0, 32), (1, 33)), "n").encode())
    (machine,) = root.findall("object")
    assert machine.get("cpuset") == "0x00000003,0x00000003"
    (memory,) = (child for child in machine.findall("object") if child.get("type") == "NUMANode")
    assert memory.get("local_memory") == str(1 << 30)
    second = [child for child in machine.findall("object") if child.get("type") == "Core"][1]
    assert (second.get("os_index"), second.get("cpuset")) == ("1", "0x00000002,0x00000002")
    threads = [(child.get("type"), child.get("os_index"), child.get("cpuset")) for child in second.findall("object")]
    assert threads == [("PU", "1", "0x00000002"), ("PU", "33", "0x00000002,0x00000000")]
    numbers = [child.get("gp_index") for child in root.iter("object")]
    assert len(set(numbers)) == len(numbers)


def test_a_file_is_handed_out_as_it_is_and_a_bad_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "node.xml"
    text = node_topology.made_of(found((0,)), "elsewhere") + "<!-- written by somebody -->"
    path.write_text(text)
    assert node_topology.xml(False, str(path)) == text
    other = node_topology.made_of(found((0,), (1,)), "elsewhere")
    path.write_text(other)
    assert node_topology.xml(False, str(path)) == other, "the file has changed"
    bad = tmp_path / "bad.xml"
    bad.write_text("<topology>")
    for file, number in ((bad, errno.EINVAL), (tmp_path / "absent", errno.ENOENT)):
        with pytest.raises(RpcError, match=f"FLUX_HWLOC_XMLFILE={file}: ") as failure:
            node_topology.xml(False, str(file))
        assert failure.value.errnum == number
