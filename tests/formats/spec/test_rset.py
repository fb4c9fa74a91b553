"""Resource sets: reading and writing R, set operations, renumbering."""

from typing import List, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset import ResourceSet, RsetError


def make(ranks: str, cores: str, gpus: str = "", hosts: str = "") -> ResourceSet:
    names = hosts.split(",") if hosts else None
    return ResourceSet.build(Idset.parse(ranks), Idset.parse(cores), Idset.parse(gpus) if gpus else None, names)


# -- the recordings of real Flux


@pytest.mark.parametrize(
    ("rset", "text"),
    [
        (
            make("0-3", "0-1", "0", "a,b,c,d"),
            '{"version": 1, "execution": {"R_lite": [{"rank": "0-3", "children": {"gpu": "0", "core": "0-1"}}],'
            ' "starttime": 0.0, "expiration": 0.0, "nodelist": ["a,b,c,d"]}}',
        ),
        (
            ResourceSet.build(
                Idset.parse("0-1"), Idset.parse("0-1"), hosts=["vm", "vm"], properties={"fast": Idset.parse("0")}
            ),
            '{"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-1"}}], "starttime": 0.0,'
            ' "expiration": 0.0, "nodelist": ["vm,vm"], "properties": {"fast": "0"}}}',
        ),
        (
            ResourceSet(),
            '{"version": 1, "execution": {"R_lite": [], "starttime": 0.0, "expiration": 0.0, "nodelist": [""]}}',
        ),
    ],
)
def test_encode_writes_what_flux_writes(rset: ResourceSet, text: str) -> None:
    assert rset.encode() == text


def test_a_job_r_without_slots_and_properties_is_read() -> None:
    recorded = (
        '{"version": 1, "execution": {"R_lite": [{"rank": "1", "children": {"core": "1"}}], "nodelist": ["node0"],'
        ' "starttime": 1795224526, "expiration": 9223372036}}'
    )
    rset = ResourceSet.parse(recorded)
    assert (rset.starttime, rset.expiration, rset.host(1)) == (1795224526, 9223372036, "node0")


@pytest.mark.parametrize(
    ("rset", "short"),
    [
        (make("1-2", "0-1"), "rank[1-2]/core[0-1]"),
        (make("3", "0-1"), "rank3/core[0-1]"),
        (make("0", "0-3", "0"), "rank0/core[0-3],gpu0"),
        (make("1", "0").union(make("0", "1-2")), "rank0/core[1-2] rank1/core0"),
        (ResourceSet(), ""),
    ],
)
def test_short_form_is_flux_resource_summary(rset: ResourceSet, short: str) -> None:
    assert rset.short_form() == short


@pytest.mark.parametrize(
    ("a", "b", "union", "diff", "intersect"),
    [
        (
            make("4", "8-15"),
            make("4", "10-11,20"),
            "rank4/core[8-15,20]",
            "rank4/core[8-9,12-15]",
            "rank4/core[10-11]",
        ),
        (make("2", "6", "1-2"), make("2", "5-6", "2"), "rank2/core[5-6],gpu[1-2]", "rank2/gpu1", "rank2/core6,gpu2"),
        (
            make("10-14", "0,4"),
            make("9,11-12", "4"),
            "rank9/core4 rank[10-14]/core[0,4]",
            "rank[10,13-14]/core[0,4] rank[11-12]/core0",
            "rank[11-12]/core4",
        ),
        (make("3", "1"), make("5", "1"), "rank[3,5]/core1", "rank3/core1", ""),
    ],
)
def test_set_operations_split_groups(a: ResourceSet, b: ResourceSet, union: str, diff: str, intersect: str) -> None:
    assert a.union(b).short_form() == union
    assert a.diff(b).short_form() == diff
    assert a.intersect(b).short_form() == intersect


def test_a_rank_that_comes_back_has_the_properties_it_comes_with() -> None:
    """And not those that it had before it left."""
    one = {"rank": "0-1", "children": {"core": "0"}}
    body = {"R_lite": [one], "starttime": 0.0, "expiration": 0.0, "nodelist": ["n[0-1]"], "properties": {"fast": "0-1"}}
    both = ResourceSet.from_obj({"version": 1, "execution": body})
    plain = both.without_properties(lambda _name: False)
    left, back = both.exclude_ranks(Idset.parse("1")), plain.exclude_ranks(Idset.parse("0"))
    assert left.union(back).properties == back.union(left).properties == {"fast": Idset.parse("0")}


def test_append_merges_ranks_and_refuses_what_both_have() -> None:
    joined = make("2", "0,6", hosts="east").append(make("2,6", "1-2", hosts="east,west"))
    assert joined.short_form() == "rank2/core[0-2,6] rank6/core[1-2]"
    assert joined.hosts == ["east", "west"]
    with pytest.raises(RsetError, match="both sets have rank6/core2"):
        joined.append(make("6", "2"))


def test_counts_and_lookups() -> None:
    rset = make("0-1", "0-3", "0", "a,b").append(make("5", "0-1", hosts="c"))
    assert (rset.nnodes, rset.ncores, rset.ngpus) == (3, 10, 2)
    assert (str(rset.cores(5)), str(rset.gpus(5)), str(rset.cores(2))) == ("0-1", "", "")
    assert str(rset.host_ranks("b")) == "1"
    assert [(node.rank, node.host, len(node.cores), len(node.gpus)) for node in rset.nodes()] == [
        (0, "a", 4, 1),
        (1, "b", 4, 1),
        (5, "c", 2, 0),
    ]


def test_selecting_keeps_hosts_and_properties_of_what_is_left() -> None:
    rset = make("0-3", "0-1", hosts="a,b,c,d").with_property("fast", Idset.parse("1-2"))
    assert rset.select_ranks(Idset.parse("2-9")).hosts == ["c", "d"]
    assert rset.exclude_ranks(Idset.parse("1")).properties == {"fast": Idset.parse("2")}
    assert rset.select_hosts(["d", "nosuch"]).short_form() == "rank3/core[0-1]"
    assert rset.select_constraint({"properties": ["fast"]}).short_form() == "rank[1-2]/core[0-1]"
    assert rset.select_constraint({"properties": ["^fast"]}).short_form() == "rank[0,3]/core[0-1]"


def test_with_property_refuses_unknown_ranks_and_bad_names() -> None:
    rset = make("0-1", "0")
    with pytest.raises(RsetError, match="ranks 2 not found"):
        rset.with_property("x", Idset.parse("1-2"))
    with pytest.raises(RsetError, match="invalid property 'a&b'"):
        rset.with_property("a&b", Idset.parse("1"))


# -- renumbering


def test_rerank_numbers_nodes_from_0_in_order() -> None:
    rset = make("3,7", "2-3", hosts="x,y").with_property("p", Idset.parse("7"))
    assert rset.rerank().to_obj()["execution"]["properties"] == {"p": "1"}
    assert rset.rerank().short_form() == "rank[0-1]/core[2-3]"
    assert rset.rerank().hosts == ["x", "y"]


def test_rerank_follows_a_host_list_and_keeps_the_order_of_equal_hosts() -> None:
    rset = make("0", "0", hosts="b").append(make("1", "1", hosts="a")).append(make("2", "2", hosts="b"))
    assert rset.rerank(["a", "b", "b"]).short_form() == "rank0/core1 rank1/core0 rank2/core2"


@pytest.mark.parametrize(
    ("hosts", "message"), [(["a"], "too few hosts"), (["a", "b", "c"], "too many hosts"), (["a", "z"], "host z is not")]
)
def test_rerank_refuses_another_set_of_hosts(hosts: List[str], message: str) -> None:
    with pytest.raises(RsetError, match=message):
        make("0-1", "0", hosts="a,b").rerank(hosts)


def test_remap_numbers_cores_from_0_and_leaves_gpus() -> None:
    scattered = make("12", "16,18", "2").append(make("30-31", "5-6,40", "0,2"))
    assert scattered.remap().short_form() == "rank0/core[0-1],gpu2 rank[1-2]/core[0-2],gpu[0,2]"


# -- reading


def test_opaque_parts_travel_unchanged() -> None:
    execution = {"R_lite": [{"rank": "0-1", "children": {"core": "0-1"}}], "nslots": 2}
    obj = {"version": 1, "execution": execution, "scheduling": {"graph": {"nodes": []}}, "attributes": {"system": {}}}
    again = ResourceSet.from_obj(obj).select_ranks(Idset.parse("0")).to_obj()
    assert again["scheduling"] == obj["scheduling"]
    assert again["attributes"] == obj["attributes"]
    assert again["execution"]["nslots"] == 2


def test_text_that_is_not_json_is_refused() -> None:
    with pytest.raises(RsetError, match="not JSON"):
        ResourceSet.parse("{")


# -- properties of the operations

Cells = Set[Tuple[int, str, int]]
_cells = st.sets(st.tuples(st.integers(0, 5), st.sampled_from(["core", "gpu"]), st.integers(0, 3)))


def from_cells(cells: Cells) -> ResourceSet:
    rset = ResourceSet()
    for rank, kind, number in cells:
        ids = Idset([number])
        one = ResourceSet.build(Idset([rank]), ids if kind == "core" else Idset(), ids if kind == "gpu" else None)
        rset = rset.append(one)
    return rset


def to_cells(rset: ResourceSet) -> Cells:
    return {
        (node.rank, kind, number)
        for node in rset.nodes()
        for kind, ids in (("core", node.cores), ("gpu", node.gpus))
        for number in ids
    }


@given(_cells, _cells)
@settings(max_examples=60)
def test_operations_are_those_of_sets_of_cores_and_gpus(a: Cells, b: Cells) -> None:
    left, right = from_cells(a), from_cells(b)
    assert to_cells(left) == a
    assert to_cells(left.union(right)) == a | b
    assert to_cells(left.diff(right)) == a - b
    assert to_cells(left.intersect(right)) == a & b
    assert ResourceSet.parse(left.encode()) == left
    assert left.ncores == sum(1 for _, kind, _ in a if kind == "core")


@given(st.text(max_size=30))
def test_any_text_is_a_set_or_an_rset_error(text: str) -> None:
    try:
        ResourceSet.parse(text)
    except RsetError:
        return
    raise AssertionError("no short random text is an R")
