"""Graphs from hwloc's XML, of both versions. What hwloc makes of the same files was looked up with hwloc itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.sched.graph.formats.hwloc import read
from headrace.sched.graph.model import Graph, GraphError
from headrace.sched.graph.resource_query import main

HOST = '<info name="HostName" value="n07"/>'


def obj(kind: str, *inside: str, **attributes: object) -> str:
    text = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f'<object type="{kind}"{text}>{"".join(inside)}</object>'


def core(number: int, **more: object) -> str:
    return obj("Core", obj("PU", os_index=number, **more))


def device(name: str, kind: int, *info: str) -> str:
    return obj("Bridge", obj("PCIDev", obj("OSDev", *info, name=name, osdev_type=kind)))


def size(kilobytes: object) -> str:
    return f'<info name="Size" value="{kilobytes}"/>'


def machine(*inside: str, version: str = "2.0", **attributes: object) -> str:
    head = f' version="{version}"' if version else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE topology SYSTEM "hwloc2.dtd">'
        f"<topology{head}>{obj('Machine', HOST, *inside, **attributes)}</topology>"
    )


def paths(graph: Graph) -> list[str]:
    return [graph.path(v).removeprefix("/cluster0") for v in graph.vertices()]


def test_a_node_is_named_by_its_host_and_numbers_count_a_level() -> None:
    text = machine(*(obj("Package", core(8 * i), core(8 * i + 5)) for i in range(2)))
    graph = read(text, ["node", "socket", "core"])
    assert paths(graph) == [
        "",
        "/n07",
        "/n07/socket0",
        "/n07/socket0/core0",
        "/n07/socket0/core1",
        "/n07/socket1",
        "/n07/socket1/core2",
        "/n07/socket1/core3",
    ]
    assert (graph.type[1], graph.basename[1], graph.id[1], graph.rank[1]) == ("node", "n", 7, 0)


def test_without_a_list_all_types_are_taken_and_memory_follows_what_is_beside_it() -> None:
    text = machine(obj("Package", obj("NUMANode", os_index=3), core(0)), device("sda", 0, size(2_500_000)))
    assert paths(read(text))[2:] == [
        "/n07/socket0",
        "/n07/socket0/core0",
        "/n07/socket0/core0/pu0",
        "/n07/socket0/numanode0",
        "/n07/storage0",
    ]


def test_types_that_are_left_out_hand_their_children_up() -> None:
    text = machine(obj("Package", core(0)))
    assert paths(read(text, ["core"])) == ["", "/core0"]
    nameless = text.replace("HostName", "Other")
    assert paths(read(nameless, ["node", "core"])) == ["", "/core0"]


def test_caches_stay_where_they_say_what_is_shared() -> None:
    def cache(level: int, *inside: str, kind: int = 0) -> str:
        return obj(f"L{level}{'i' if kind == 2 else ''}Cache", *inside, cache_size=level * 2048, cache_type=kind)

    # One third level cache a socket says nothing; a second level of two cores does; that of one core does not.
    cores = [cache(2, *(cache(1, cache(1, core(2 * i + j), kind=2)) for j in range(2))) for i in range(2)]
    graph = read(machine(obj("Package", cache(3, *cores))), ["L1cache", "L2cache", "L3cache", "core"])
    assert paths(graph)[1:] == [
        "/L2cache0",
        "/L2cache0/core0",
        "/L2cache0/core1",
        "/L2cache1",
        "/L2cache1/core2",
        "/L2cache1/core3",
    ]
    assert (graph.type[1], graph.size[1]) == ("cache", 4)


def test_of_two_caches_that_say_the_same_the_outer_stays_and_data_stays_before_instructions() -> None:
    inner = obj("L1iCache", obj("L1Cache", core(0), core(1), cache_size=1024), cache_size=9216)
    text = machine(obj("Package", obj("L2Cache", inner, cache_size=7168), core(2)))
    graph = read(text, ["L1cache", "L2cache"])
    assert [(graph.name(v), graph.size[v]) for v in graph.vertices()][1:] == [("L2cache0", 7)]


def test_version_1_memory_becomes_a_leaf_beside_what_it_contained() -> None:
    old = machine(
        *(obj("NUMANode", obj("Socket", core(i)), device(f"cuda{i}", 5)) for i in range(2)),
        version="",
    )
    assert paths(read(old, ["node", "socket", "numanode", "gpu", "group"]))[1:] == [
        "/n07",
        "/n07/socket0",
        "/n07/socket0/numanode0",
        "/n07/socket0/gpu0",
        "/n07/socket1",
        "/n07/socket1/numanode1",
        "/n07/socket1/gpu1",
    ]


def test_version_1_memory_of_the_whole_machine_is_the_machines() -> None:
    old = machine(
        obj(
            "NUMANode",
            obj("Socket", obj("Cache", core(0), core(1), depth=3, cache_type=0)),
            device("sda", 0, size(10**7)),
        ),
        device("sdb", 0, size(10**6)),
        version="",
    )
    graph = read(old, ["socket", "numanode", "storage", "L3cache"])
    assert [(graph.path(v), graph.size[v]) for v in graph.vertices()][1:] == [
        ("/cluster0/socket0", 1),
        ("/cluster0/numanode0", 1),
        ("/cluster0/storage0", 10),
        ("/cluster0/storage1", 1),
    ]


def test_memory_of_part_of_a_socket_makes_a_group() -> None:
    old = machine(obj("Socket", *(obj("NUMANode", core(2 * i), core(2 * i + 1)) for i in range(2))), version="")
    assert paths(read(old, ["group", "numanode"]))[1:] == [
        "/group0",
        "/group0/numanode0",
        "/group1",
        "/group1/numanode1",
    ]


def test_memory_without_processors_keeps_the_groups_and_comes_last() -> None:
    sockets = [obj("NUMANode", obj("Socket", core(i)), device(f"cuda{i}", 5)) for i in range(2)]
    old = machine(obj("NUMANode", device("cuda9", 5)), *sockets, version="1.0")
    assert paths(read(old, ["group", "socket", "numanode", "gpu"]))[1:] == [
        "/group0",
        "/group0/socket0",
        "/group0/numanode0",
        "/group0/gpu0",
        "/group1",
        "/group1/socket1",
        "/group1/numanode1",
        "/group1/gpu1",
        "/group2",
        "/group2/numanode2",
        "/group2/gpu9",
    ]


def test_a_machine_of_version_1_that_mentions_no_memory_has_one() -> None:
    assert paths(read(machine(core(0), version=""), ["numanode"]))[1:] == ["/numanode0"]


def test_groups_that_say_nothing_leave_unless_they_are_not_to_be_merged() -> None:
    for more, expected in (({}, []), ({"dont_merge": 1}, ["/group0"])):
        text = machine(obj("Group", obj("Package", core(0), core(1)), **more))
        assert paths(read(text, ["group"]))[1:] == expected


def test_gpus_are_numbered_by_their_drivers_and_screens_are_none() -> None:
    devices = [("cuda3", 5), ("opencl0d2", 5), ("rsmi5", 1), ("card0", 1), ("dma0chan0", 4), ("eth0", 2), ("ze1", 5)]
    graph = read(machine(core(0), *(device(*found) for found in devices)), ["gpu"])
    # What has no number that is known has its place among all devices but those of DMA.
    assert paths(graph)[1:] == ["/gpu3", "/gpu2", "/gpu5", "/gpu5"]


def test_processors_that_are_not_allowed_leave_with_what_is_empty_without_them() -> None:
    text = machine(obj("Package", core(0)), obj("Package", core(1), core(33)), allowed_cpuset="0x00000002,0x00000000")
    assert paths(read(text, ["socket", "core", "pu"]))[1:] == ["/socket0", "/socket0/core0", "/socket0/core0/pu0"]
    everything = text.replace("0x00000002,0x00000000", "0xf...f")
    assert paths(read(everything, ["pu"]))[1:] == ["/pu0", "/pu1", "/pu2"]


def test_storage_is_counted_in_gigabytes_and_keeps_its_number() -> None:
    text = machine(core(0), device("nvme0n1", 0, size(1_600_321_000), '<info name="LinuxDeviceID" value="259:0"/>'))
    graph = read(text, ["storage"])
    assert graph.size[1] == 1600
    assert graph.properties[1] == {"LinuxDeviceID": "259:0"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not well-formed"),
        ("<topology>", "not well-formed"),
        ("<graphml/>", "outermost element must be topology, not graphml"),
        ("<topology/>", "the outermost object must be one Machine, not nothing"),
        (f"<topology>{core(0)}</topology>", "the outermost object must be one Machine, not Core"),
        (machine(core(0), version="3.0"), "version 3.0"),
        (machine(), "no PU"),
        (machine(obj("Sausage")), "unknown type 'Sausage'"),
        (machine(obj("Cache", core(0), depth=-3)), "unknown type 'Cache'"),
        (machine(core(-1)), "os_index must be a number from 0 on, not '-1'"),
        (machine(obj("L3Cache", core(0), cache_size=-5)), "cache_size must be"),
        (machine(obj("L3Cache", core(0), cache_size="9" * 5000)), "cache_size must be"),
        (machine(core(0), allowed_cpuset="all"), "'all' is not a set of processors"),
        (machine(core(0), device("sda", 0)), "storage 'sda': Size must be"),
        (machine(core(0), device("sda", 0, size(-7))), "not '-7'"),
        (machine(core(0)).replace("n07", "n" + "9" * 30), "does not fit 63 bits"),
        ('<!DOCTYPE t [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><topology>&c;</topology>', "entities are not accepted"),
        ("<object>" * 2000, "more than 100 levels"),
        (machine(*(obj("Group", core(i), depth=i) for i in range(200))), "more than 128 levels of different kinds"),
        ('<?xml version="1.0" encoding="nothing"?><topology/>', "not well-formed"),
    ],
)
def test_what_is_no_topology_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(GraphError, match="hwloc: .*" + reason):
        read(text)


def ask(tmp_path: Path, text: str, *options: str) -> int:
    (tmp_path / "node.xml").write_text(text)
    (tmp_path / "commands").write_text("find status=up\nquit\n")
    out = ["-t", str(tmp_path / "out"), "-d", "-L", str(tmp_path / "node.xml"), "-f", "hwloc"]
    with open(tmp_path / "commands") as commands:
        return main([*out, *options], commands)


def test_resource_query_loads_the_types_it_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(tmp_path, machine(obj("Package", core(0), device("cuda0", 5))), "-W", "node,gpu,") == 0
    assert (tmp_path / "out").read_text().splitlines()[:3] == [
        "      ---------gpu0[1:x]",
        "      ------n07[1:x]",
        "      ---cluster0[1:x]",
    ]
    assert capfd.readouterr().err == ""


def test_resource_query_says_why_it_does_not_load(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(tmp_path, "<topology/>") == 1
    assert "ERROR: hwloc: the outermost object must be one Machine, not nothing" in capfd.readouterr().err
    assert ask(tmp_path, machine(core(0)), "-S", "PA") == 1
    assert "format hwloc has no subsystem power" in capfd.readouterr().err


def test_nodes_are_ranked_in_their_order(tmp_path: Path) -> None:
    assert ask(tmp_path, machine(core(0), core(1)), "-F", "rlite") == 0
    wanted = '[{"rank": "0", "children": {"core": "0-1"}}]'
    assert (tmp_path / "out").read_text().splitlines()[0] == wanted
