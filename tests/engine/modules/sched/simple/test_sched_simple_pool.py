"""The allocator against its own books: a model that counts every core."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.engine.modules.sched.common.r import Share, Shares, shares_of_r, summary
from headrace.engine.modules.sched.simple.pool import Pool, Request, Unsatisfiable
from headrace.formats.spec.rset import ResourceSet


def rset(*groups: tuple[str, str, str], nodelist: str = "node[0-3]", **execution: Any) -> ResourceSet:
    r_lite = [
        {"rank": rank, "children": {"core": core, "gpu": gpu} if gpu else {"core": core}} for rank, core, gpu in groups
    ]
    body = {"R_lite": r_lite, "starttime": 0.0, "expiration": 0.0, "nodelist": [nodelist], **execution}
    return ResourceSet.from_obj({"version": 1, "execution": body})


def pool(*groups: tuple[str, str, str], mode: str = "worst-fit", **execution: Any) -> Pool:
    made = Pool(rset(*(groups or (("0-3", "0-1", ""),)), **execution), mode)
    made.set_up(made.all)
    return made


def slots(count: int, cores: int = 1, gpus: int = 0, nnodes: int = 0, exclusive: bool = False) -> Request:
    return Request(nnodes, count, cores, gpus, exclusive)


def placed(made: Pool, request: Request, within: int = -1) -> str:
    shares = made.allocate(request, within)
    return "" if shares is None else summary(made.job_r(shares, 0.0, 0.0))


def test_slots_fill_a_node_before_the_next() -> None:
    assert placed(pool(), slots(5)) == "rank[0-1]/core[0-1] rank2/core0"


def test_properties_come_and_go_with_their_ranks() -> None:
    made = pool(("0-1", "0-1", ""), nodelist="node[0-1]", properties={"fast": "0-1"})
    made.remove(0b10)
    made.add(rset(("1-2", "0-1", ""), nodelist="node[1-2]", properties={"fast": "2", "big": "1-2"}))
    made.set_up(0b111)
    shares = made.allocate(slots(6))
    assert shares is not None
    assert made.job_r(shares, 0.0, 0.0)["execution"]["properties"] == {"fast": "0,2", "big": "1-2"}


def test_the_emptiest_node_comes_first() -> None:
    made = pool()
    assert [placed(made, slots(1)) for _ in range(6)] == [
        "rank0/core0",
        "rank1/core0",
        "rank2/core0",
        "rank3/core0",
        "rank0/core1",
        "rank1/core1",
    ]


@pytest.mark.parametrize(
    ("mode", "second", "pair"),
    [
        ("worst-fit", "rank1/core0", "rank2/core[0-1]"),
        ("best-fit", "rank0/core1", "rank1/core[0-1]"),
        ("first-fit", "rank0/core1", "rank1/core[0-1]"),
    ],
)
def test_the_mode_says_which_nodes_slots_go_to_first(mode: str, second: str, pair: str) -> None:
    made = pool(mode=mode)
    assert placed(made, slots(1)) == "rank0/core0"
    assert placed(made, slots(1)) == second
    assert placed(made, slots(1, cores=2)) == pair


@pytest.mark.parametrize(("mode", "chosen"), [("best-fit", "rank1/core0"), ("first-fit", "rank0/core1")])
def test_best_fit_takes_the_fullest_node_and_first_fit_the_first(mode: str, chosen: str) -> None:
    made = pool(("0", "0-2", ""), ("1", "0", ""), nodelist="node[0-1]", mode=mode)
    made.mark_allocated([Share(0, 1, 0)])
    assert placed(made, slots(1)) == chosen


def test_slots_on_nodes_are_as_many_on_each() -> None:
    assert placed(pool(("0-3", "0-3", "")), slots(2, nnodes=3)) == "rank[0-2]/core[0-1]"


def test_whole_nodes_need_to_be_idle_and_come_with_all_they_have() -> None:
    made = pool(("0-3", "0-1", "0"))
    made.allocate(slots(1))
    assert placed(made, slots(1, nnodes=3, exclusive=True)) == "rank[1-3]/core[0-1],gpu0"
    assert placed(made, slots(1, nnodes=1, exclusive=True)) == ""


def test_an_idle_node_that_is_too_small_is_none_that_fits() -> None:
    made = pool(("0", "0-3", ""), ("1", "0-7", ""), nodelist="node[0-1]")
    wanted = slots(1, 8, nnodes=1, exclusive=True)
    assert placed(made, wanted) == "rank1/core[0-7]"
    assert made.shortage(wanted) == "insufficient resources: need 1 idle node(s), 0 free"


def test_gpus_bound_the_slots_of_a_node() -> None:
    made = pool(("0-1", "0-7", "0-1"), ("2-3", "0-7", ""))
    assert placed(made, slots(3, 1, 1)) == "rank0/core[0-1],gpu[0-1] rank1/core0,gpu0"
    assert placed(made, slots(2, 1, 1)) == ""
    assert made.shortage(slots(2, 1, 1)) == "insufficient resources: need 2 gpu(s), 1 free"


def test_down_nodes_give_nothing_and_come_back_with_what_is_free() -> None:
    made = pool()
    held = made.allocate(slots(2))
    assert held == (Share(0, 3, 0),)
    made.set_down(0b0011)
    assert placed(made, slots(8)) == ""
    made.free(held)
    made.set_up(0b0011)
    assert placed(made, slots(8)) == "rank[0-3]/core[0-1]"


def test_a_mask_of_ranks_is_kept() -> None:
    made = pool()
    assert placed(made, slots(4), 0b1100) == "rank[2-3]/core[0-1]"
    assert made.allocate(slots(1), 0b1100) is None


def test_removed_ranks_are_gone_and_their_jobs_can_still_be_freed() -> None:
    made = pool()
    held = made.allocate(slots(8))
    assert held is not None
    made.remove(0b1000)
    made.free(held)
    assert placed(made, slots(6)) == "rank[0-2]/core[0-1]"
    with pytest.raises(Unsatisfiable):
        made.check(slots(8))


def test_added_ranks_start_down_and_may_have_more_cores_than_any_before() -> None:
    made = pool()
    made.add(rset(("4", "0-7", "0"), nodelist="big"))
    assert made.allocate(slots(9)) is None
    made.check(slots(16))
    made.check(slots(1, 8, 1, nnodes=1))
    made.set_up(0b10000)
    assert placed(made, slots(1, 1, 1)) == "rank4/core0,gpu0"
    assert placed(made, slots(15)) == "rank[0-3]/core[0-1] rank4/core[1-7]"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (slots(16), "need 16 slot(s) of 1 core(s), only 8 such slot(s) available (total cores: 8)"),
        (slots(5, 2), "need 5 slot(s) of 2 core(s), only 4 such slot(s) available (total cores: 8)"),
        (slots(1, 1, 1), "need 1 slot(s) of 1 core(s) and 1 gpu(s), only 0 such slot(s) available (total cores: 8)"),
        (slots(1, nnodes=5, exclusive=True), "need 5 exclusive node(s), only 4 eligible"),
        (slots(3, nnodes=1), "need 1 node(s) with 3 slot(s) of 1 core(s), only 0 eligible"),
    ],
)
def test_requests_beyond_the_whole_system_say_what_is_short(request_: Request, text: str) -> None:
    with pytest.raises(Unsatisfiable) as short:
        pool().check(request_)
    assert str(short.value) == "unsatisfiable request: " + text


def test_what_is_down_does_not_make_a_request_unsatisfiable() -> None:
    made = pool()
    made.set_down(made.all)
    made.check(slots(8))
    assert made.shortage(slots(8)) == "all eligible nodes are down or drained"


def test_jobs_that_run_already_are_taken_over_once() -> None:
    made = pool()
    r = made.job_r((Share(1, 0b01, 0), Share(2, 0b11, 0)), 1.0, 2.0)
    made.mark_allocated(shares_of_r(r))
    assert placed(made, slots(5)) == "rank[0,3]/core[0-1] rank1/core1"
    with pytest.raises(ValueError, match="rank 1: resources are already allocated"):
        made.mark_allocated(shares_of_r(r))
    with pytest.raises(ValueError, match="rank 9 is not part"):
        made.mark_allocated([Share(9, 1, 0)])


def test_r_of_a_job_reads_like_that_of_the_system() -> None:
    made = pool(("0-1", "0-3", "0-1"), ("2-3", "0-1", ""), properties={"fast": "0-1", "slow": "2"})
    shares = made.allocate(slots(7, 1, 0))
    assert shares is not None
    r = made.job_r(shares, 10.0, 20.0)
    assert list(r["execution"]) == ["R_lite", "nodelist", "starttime", "expiration", "properties"]
    assert r["execution"]["properties"] == {"fast": "0-1"}
    assert ResourceSet.from_obj(r).ncores == 7
    assert shares_of_r(r) == tuple(sorted(shares))


REQUESTS = st.builds(
    Request, st.integers(0, 3), st.integers(1, 5), st.integers(1, 3), st.integers(0, 2), st.booleans()
).map(lambda request: request._replace(exclusive=request.exclusive and request.nnodes > 0))


class Books(RuleBasedStateMachine):
    """Whatever happens, nothing is given twice, nothing is lost, and only nodes that are up give."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = (("0-2", "0-3", "0-1"), ("3-5", "0-1", ""))
        self.pool = Pool(rset(*self.groups, nodelist="n[0-5]"))
        self.up = 0
        self.jobs: list[Shares] = []

    @rule(ranks=st.integers(0, 63))
    def raise_nodes(self, ranks: int) -> None:
        self.pool.set_up(ranks)
        self.up |= ranks

    @rule(ranks=st.integers(0, 63))
    def lower_nodes(self, ranks: int) -> None:
        self.pool.set_down(ranks)
        self.up &= ~ranks

    @rule(request=REQUESTS, within=st.integers(0, 63))
    def allocate(self, request: Request, within: int) -> None:
        shares = self.pool.allocate(request, within)
        if shares is None:
            assert not self.fits(request, within & self.up), request
            assert self.pool.shortage(request, within)
            return
        self.pool.check(request, within)
        self.jobs.append(shares)
        assert all(self.up & within & 1 << share.rank for share in shares)
        cores = sum(share.cores.bit_count() for share in shares)
        gpus = sum(share.gpus.bit_count() for share in shares)
        wanted = request.nslots * (request.nnodes or 1)
        if request.exclusive:
            assert cores >= wanted * request.cores and len(shares) == request.nnodes
        else:
            assert (cores, gpus) == (wanted * request.cores, wanted * request.gpus)
            assert not request.nnodes or len({share.rank for share in shares}) == request.nnodes

    def fits(self, request: Request, mask: int) -> bool:
        """The same question answered slowly, node by node."""
        whole, total = 0, 0
        for rank, node in self.pool.nodes.items():
            if not mask & 1 << rank:
                continue
            held = [share for shares in self.jobs for share in shares if share.rank == rank]
            cores = node.cores.bit_count() - sum(share.cores.bit_count() for share in held)
            gpus = node.gpus.bit_count() - sum(share.gpus.bit_count() for share in held)
            here = cores // request.cores
            if request.gpus:
                here = min(here, gpus // request.gpus)
            total += here
            whole += here >= request.nslots and not (request.exclusive and held)
        return whole >= request.nnodes if request.nnodes else total >= request.nslots

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        self.pool.free(self.jobs.pop(data.draw(st.integers(0, len(self.jobs) - 1))))

    @invariant()
    def books_balance(self) -> None:
        for rank, node in self.pool.nodes.items():
            held_cores = held_gpus = 0
            for share in (share for shares in self.jobs for share in shares if share.rank == rank):
                assert not held_cores & share.cores and not held_gpus & share.gpus
                held_cores |= share.cores
                held_gpus |= share.gpus
            assert node.free == node.cores & ~held_cores
            assert node.free_gpus == node.gpus & ~held_gpus


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@given(st.integers(0, 1 << 40), st.integers(0, 20))
def test_the_lowest_free_cores_are_taken(free: int, count: int) -> None:
    if free.bit_count() < max(count, 1) or not count:
        return
    ids = [bit for bit in range(41) if free >> bit & 1]
    made = Pool(rset(("0", ",".join(map(str, ids)), ""), nodelist="a"))
    made.set_up(1)
    shares = made.allocate(slots(count))
    assert shares is not None
    assert [bit for bit in range(41) if shares[0].cores >> bit & 1] == ids[:count]
