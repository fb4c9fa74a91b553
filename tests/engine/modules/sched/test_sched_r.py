"""R of what schedulers give to jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.modules.sched.r import Share, each, in_use, job_r, shares_of_r, summary
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset import ResourceSet

# A share of neither cores nor GPUs is none.
_bits = st.integers(0, 0b1111)
_shares = st.dictionaries(st.integers(0, 5), st.tuples(_bits, _bits).filter(any), min_size=1).map(
    lambda found: tuple(Share(rank, *found[rank]) for rank in sorted(found))
)


def host(rank: int) -> str:
    return f"node{rank}"


@given(_shares)
def test_what_is_written_is_read_back_and_summed_up(shares: tuple[Share, ...]) -> None:
    r = job_r(shares, host, {}, 1.0, 2.0)
    read = ResourceSet.from_obj(r)
    assert shares_of_r(r) == shares
    assert summary(r) == read.short_form()
    assert read.hosts == [host(share.rank) for share in shares]
    assert (read.starttime, read.expiration) == (1.0, 2.0)


def test_keys_are_in_fluxs_order_and_properties_are_those_of_the_ranks() -> None:
    shares = [Share(0, 0b11, 0), Share(1, 0b1, 0b1), Share(2, 0b11, 0)]
    r = job_r(shares, host, {"fast": 0b110, "far": 0b1000}, 0.0, 0.0)
    assert list(r["execution"]) == ["R_lite", "nodelist", "starttime", "expiration", "properties"]
    assert [group["rank"] for group in r["execution"]["R_lite"]] == ["0,2", "1"]
    assert list(r["execution"]["R_lite"][1]["children"]) == ["core", "gpu"]
    assert r["execution"]["properties"] == {"fast": "1-2"}


@given(st.integers(0, 1 << 70))
def test_each_names_the_set_bits_in_order(bits: int) -> None:
    assert list(each(bits)) == list(Idset.from_bits(bits))


def test_what_is_in_use_has_the_hosts_and_properties_of_the_whole() -> None:
    ranks, cores = Idset.parse("0-3"), Idset.parse("0-3")
    whole = ResourceSet.build(ranks, cores, Idset.parse("0"), list("abcd"), {"fast": Idset.parse("1-2")})
    used = in_use(whole, {1: (0b1, 0), 3: (0b1111, 0b1)})
    assert used.short_form() == "rank1/core0 rank3/core[0-3],gpu0"
    assert (used.hosts, used.properties) == (["b", "d"], {"fast": Idset.parse("1")})
    assert not in_use(whole, {})
