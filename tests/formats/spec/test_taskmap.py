"""Task maps (RFC 34): all forms, the schemes that make them, lookups."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.idset import Idset
from headrace.formats.spec.taskmap import TaskMap, TaskMapError

VECTORS = [
    ("0", "[[0,1,1,1]]"),
    ("0;1", "[[0,2,1,1]]"),
    ("0-1", "[[0,1,2,1]]"),
    ("0-1;2-3", "[[0,2,2,1]]"),
    ("0,2;1,3", "[[0,2,1,2]]"),
    ("1;0", "[[1,1,1,1],[0,1,1,1]]"),
    ("0-3;4-7;8-11;12-15", "[[0,4,4,1]]"),
    ("0,4,8,12;1,5,9,13;2,6,10,14;3,7,11,15", "[[0,4,1,4]]"),
    ("0-1,8-9;2-3,10-11;4-5,12-13;6-7,14-15", "[[0,4,2,2]]"),
    ("0-1;2-3;4-5;6-7;8-11;12-15", "[[0,4,2,1],[4,2,4,1]]"),
    ("0,6;1,7;2,8;3,9;4,10,12,14;5,11,13,15", "[[0,6,1,2],[4,2,1,2]]"),
    ("14-15;12-13;10-11;8-9;4-7;0-3", "[[5,1,4,1],[4,1,4,1],[3,1,2,1],[2,1,2,1],[1,1,2,1],[0,1,2,1]]"),
    ("0-1;2-3;4-5;6-7;8-9;12-13;10-11;14-15", "[[0,5,2,1],[6,1,2,1],[5,1,2,1],[7,1,2,1]]"),
    ("12-15;8-11;4-7;0-3", "[[3,1,4,1],[2,1,4,1],[1,1,4,1],[0,1,4,1]]"),
]

counts = st.lists(st.integers(0, 9), max_size=8)


@pytest.mark.parametrize(("raw", "blocks"), VECTORS)
def test_vectors_of_the_rfc_are_read_and_written_both_ways(raw, blocks):
    assert (TaskMap.decode(raw).encode(), TaskMap.decode(blocks).raw()) == (blocks, raw)


def test_a_map_is_read_wrapped_or_not_as_text_or_object():
    expected = TaskMap([(0, 4096, 256, 1)])
    wrapped = {"version": 1, "map": [[0, 4096, 256, 1]]}
    for form in ('{"version":1, "map":[[0,4096,256,1]]}', wrapped, wrapped["map"], "(vector,(0,4096,256))"):
        assert TaskMap.decode(form) == expected
    assert expected.to_obj() == wrapped


@pytest.mark.parametrize(
    ("blocks", "mapping"),
    [
        ("[[0,4,4,1]]", "(vector,(0,4,4))"),
        ("[[0,2,1,1]]", "(vector,(0,2,1))"),
        ("[[0,4,2,1],[4,2,4,1]]", "(vector,(0,4,2),(4,2,4))"),
        ("[[0,4,1,4]]", "(vector,(0,4,1),(0,4,1),(0,4,1),(0,4,1))"),
        ("[]", ""),
    ],
)
def test_the_pmi_mapping_repeats_blocks(blocks, mapping):
    assert TaskMap.decode(blocks).pmi_mapping() == mapping
    assert not mapping or TaskMap.decode(mapping) == TaskMap.decode(blocks)


def test_a_pmi_mapping_longer_than_a_value_is_empty():
    dealt = TaskMap([(0, 4096, 1, 256)])
    assert dealt.pmi_mapping() == ""
    assert dealt.pmi_mapping(limit=None).count("(0,4096,1)") == 256
    exact = TaskMap([(0, 4, 1, 4)]).pmi_mapping()
    assert TaskMap([(0, 4, 1, 4)]).pmi_mapping(limit=len(exact)) == exact
    assert TaskMap([(0, 4, 1, 4)]).pmi_mapping(limit=len(exact) - 1) == ""


@pytest.mark.parametrize(
    ("counts", "block", "cyclic", "cyclic2"),
    [
        ([4] * 4, "[[0,4,4,1]]", "[[0,4,1,4]]", "[[0,4,2,2]]"),
        ([2] * 4 + [4] * 2, "[[0,4,2,1],[4,2,4,1]]", "[[0,6,1,2],[4,2,1,2]]", "[[0,6,2,1],[4,2,2,1]]"),
        ([256] * 4096, "[[0,4096,256,1]]", "[[0,4096,1,256]]", "[[0,4096,2,128]]"),
        ([3], "[[0,1,3,1]]", "[[0,1,1,3]]", "[[0,1,3,1]]"),
        ([0, 0], "[]", "[]", "[]"),
    ],
)
def test_schemes_give_the_maps_of_the_rfc(counts, block, cyclic, cyclic2):
    made = [TaskMap.block(counts), TaskMap.cyclic(counts), TaskMap.cyclic(counts, 2)]
    assert [one.encode() for one in made[:2]] == [block, cyclic]
    assert made[2] == TaskMap.decode(cyclic2)


@given(counts, st.integers(1, 4))
def test_cyclic_deals_in_turn_until_each_node_has_its_tasks(counts, stride):
    nodes = []
    left = list(counts)
    while any(left):
        for node, count in enumerate(left):
            nodes.extend([node] * min(stride, count))
            left[node] -= min(stride, count)
    made = TaskMap.cyclic(counts, stride)
    assert [made.node_of(task) for task in range(made.ntasks)] == nodes


@given(counts)
def test_block_fills_node_after_node(counts):
    made = TaskMap.block(counts)
    assert [made.node_of(task) for task in range(made.ntasks)] == [
        node for node, count in enumerate(counts) for _ in range(count)
    ]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_any_placement_is_kept_in_every_form(nodes):
    tasks = [Idset(task for task, at in enumerate(nodes) if at == node) for node in range(max(nodes) + 1)]
    made = TaskMap.from_nodes(tasks)
    assert (made.ntasks, made.nnodes) == (len(nodes), len(tasks))
    assert [made.node_tasks(node) for node in range(made.nnodes)] == tasks
    assert [made.node_ntasks(node) for node in range(made.nnodes)] == [len(ids) for ids in tasks]
    assert [made.node_of(task) for task in range(made.ntasks)] == nodes
    for form in (made.encode(), made.to_obj(), made.raw(), made.pmi_mapping()):
        assert TaskMap.decode(form).raw() == made.raw()


def test_a_million_tasks_are_looked_up_in_their_blocks():
    dealt = TaskMap.decode("[[0,4096,1,256]]")
    assert (dealt.nnodes, dealt.ntasks, dealt.node_ntasks(1)) == (4096, 1048576, 256)
    assert list(dealt.node_tasks(1)) == list(range(1, 1048576, 4096))
    assert (dealt.node_of(0), dealt.node_of(4097), dealt.node_of(1048575)) == (0, 1, 4095)


def test_an_unknown_map_has_no_tasks():
    unknown = TaskMap.decode("[]")
    assert (unknown.nnodes, unknown.ntasks, unknown.raw(), unknown.encode()) == (0, 0, "", "[]")
    assert not unknown.node_tasks(0)


@pytest.mark.parametrize("task", [-1, 4, 1 << 40])
def test_a_task_beyond_the_map_has_no_node(task):
    with pytest.raises(TaskMapError, match="no task"):
        TaskMap.block([2, 2]).node_of(task)


def test_a_manual_map_must_fit_the_job():
    assert TaskMap.manual("1;0", [1, 1]).encode() == "[[1,1,1,1],[0,1,1,1]]"
    # It may deal the tasks out in other numbers.
    assert TaskMap.manual("0-2;3", [2, 2]).encode() == "[[0,1,3,1],[1,1,1,1]]"
    for source, counts in [("0;1", [2]), ("0-3;", [2, 2]), ("0-1", [1, 1]), ("0;1", [1, 1, 1])]:
        with pytest.raises(TaskMapError, match="the map"):
            TaskMap.manual(source, counts)


@pytest.mark.parametrize(
    "block",
    [
        [],
        [0, 3, 2],
        [0, 3, 2, 1, 1],
        [-2, 3, 2, 1],
        [0, 0, 2, 1],
        [0, 3, -1, 1],
        [0, 3, 2, 0],
        [0, 3, 2, 1.0],
        [0, 3, 2, True],
        [0, "3", 2, 1],
        [0, None, 2, 1],
        [0, 70_000_000, 70_000_000, 1],
        [70_000_000, 3, 2, 1],
        {"nodeid": 0, "nnodes": 3, "ppn": 2, "repeat": 1},
        3,
    ],
)
def test_a_block_that_is_not_four_counts_in_range_is_refused_wherever_it_stands(block):
    for blocks in ([block], [[0, 2, 1, 1], block]):
        for form in (blocks, {"version": 1, "map": blocks}, json.dumps(blocks)):
            with pytest.raises(TaskMapError):
                TaskMap.decode(form)


@pytest.mark.parametrize(
    "source",
    [
        None,
        7,
        "",
        "seven",
        "[",
        "[[0,3,2,1]",
        "[[0,3,2,1]]]",
        "[" * 100000,
        "5",
        "0-2;2-3",
        "0-2;4",
        "3;1",
        "(vector",
        "(vector,(0,3))",
        "(vector,(0,0,2))",
        "(vector,(0,3,2)),",
        {"map": [[0, 3, 2, 1]]},
        {"version": 3, "map": [[0, 3, 2, 1]]},
        {"version": 1},
        {"version": 1, "map": "[[0,3,2,1]]"},
    ],
)
def test_what_is_no_task_map_is_refused(source):
    with pytest.raises(TaskMapError):
        TaskMap.decode(source)


def test_a_scheme_that_fits_no_job_is_refused():
    for make in (lambda: TaskMap.cyclic([1], 0), lambda: TaskMap.cyclic([-1]), lambda: TaskMap.block([-1])):
        with pytest.raises(TaskMapError):
            make()


@given(st.text(alphabet="0123456789-,;[]{}( )vector", max_size=14) | st.text(max_size=14))
def test_any_text_is_a_map_or_refused(text):
    try:
        made = TaskMap.decode(text)
    except TaskMapError:
        return
    assert TaskMap.decode(made.encode()) == made
