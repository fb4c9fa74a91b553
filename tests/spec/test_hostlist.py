"""Hostlists (RFC 29): what texts name, how lists are written, and operations on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spec.hostlist import MAX_HOSTS, Hostlist, HostlistError

names = st.from_regex(r"[a-c0-2.-]{1,3}[0-9]{0,3}(-e)?", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("", ""),
        ("foox,fooy,fooz", "foox,fooy,fooz"),
        ("[1-3,5-6]", "1,2,3,5,6"),
        ("foo[1-5]", "foo1,foo2,foo3,foo4,foo5"),
        ("foo[0-4]-eth2", "foo0-eth2,foo1-eth2,foo2-eth2,foo3-eth2,foo4-eth2"),
        ("foo1,foo1,foo1", "foo1,foo1,foo1"),
        ("[00-02]", "00,01,02"),
        ("[00-2]", "00,01,02"),
        ("foo[1,1,2,1]", "foo1,foo1,foo2,foo1"),
        ("foo[5,4,11-13]", "foo5,foo4,foo11,foo12,foo13"),
        ("foo[005,4,11-13]", "foo005,foo004,foo011,foo012,foo013"),
        ("foo[98-101]", "foo98,foo99,foo100,foo101"),
        (",a,,b,", "a,b"),
    ],
)
def test_texts_of_the_rfc_name_these_hosts(text, expanded):
    assert Hostlist.parse(text).expand() == expanded


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("foo-1a-2,foo-1a-3", "foo-1a-[2-3]"),
        ("foo1,fooi,foo2,foo3", "foo1,fooi,foo[2-3]"),
        ("fooi,foo1,foo2,foo3,foo5,foo7,foo8", "fooi,foo[1-3,5,7-8]"),
        ("1,2,3,4,5,9", "[1-5,9]"),
        ("foo[1,3]-bar", "foo1-bar,foo3-bar"),
        ("p[00-3]p", "p00p,p01p,p02p,p03p"),
        ("14636", "14636"),
        ("foo12,foo[4,1-2]", "foo[12,4,1-2]"),
        ("vm,vm,vm,vm", "vm,vm,vm,vm"),
        ("a[9,10,11]", "a[9-11]"),
        ("a[08-12]", "a[08-12]"),
        ("foo1,foo1", "foo[1,1]"),
        ("node[0-3],login", "node[0-3],login"),
        ("a01,a2", "a01,a2"),
        ("a1,a02", "a[1,02]"),
        ("a99999999999999999998,a99999999999999999999", "a99999999999999999998,a99999999999999999999"),
    ],
)
def test_neighbours_with_one_prefix_share_brackets(text, encoded):
    hosts = Hostlist.parse(text)
    assert (str(hosts), Hostlist.parse(encoded)) == (encoded, hosts)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("[]", 0),
        ("foo[]", 3),
        ("foo[", 0),
        ("foo[1,3", 0),
        ("foo[[1,3]", 0),
        ("foo]", 0),
        ("a,foo]", 2),
        ("foo[x-y]", 4),
        ("foo[0-1,2--5]", 9),
        ("foo[3-1]", 4),
        ("foo[1,]", 5),
        ("foo[1]b[2]", 0),
        ("foo bar", 3),
        ("foo\n", 3),
        ("ƒoo", 0),
        ("foo[1234567890123456789]", 4),
    ],
)
def test_text_that_breaks_the_rfc_is_refused_at_its_position(text, position):
    with pytest.raises(HostlistError, match=rf" {position}\b"):
        Hostlist.parse(text)


@pytest.mark.parametrize(
    "text", [f"foo[0-{MAX_HOSTS}]", "a[0-1048575],b", f"a[0,0-{MAX_HOSTS - 1}]", "a[0-999999999999]"]
)
def test_more_hosts_than_any_list_holds_are_refused(text):
    with pytest.raises(HostlistError, match="more than"):
        Hostlist.parse(text)


@pytest.mark.parametrize(
    ("text", "in_order", "unique"),
    [
        ("foo,f,bar,baz", "bar,baz,f,foo", "bar,baz,f,foo"),
        ("[5-6],[3-4],[1-2,0]", "[0-6]", "[0-6]"),
        ("[0-20],12,15", "[0-12,12-15,15-20]", "[0-20]"),
        ("[0-20],45,12,015", "[0-12,12-20,45,015]", "[0-20,45,015]"),
        ("bar1,bar2,foo1,foo,foo", "bar[1-2],foo,foo,foo1", "bar[1-2],foo,foo1"),
        ("foo[0-2],foo[0-2],foo[0-2]", "foo[0,0,0-1,1,1-2,2,2]", "foo[0-2]"),
        ("foo[10-12,8-9]", "foo[8-12]", "foo[8-12]"),
        ("foo[10-12],foo[08-09]", "foo[08-12]", "foo[08-12]"),
    ],
)
def test_sorting_goes_by_prefix_and_number(text, in_order, unique):
    hosts, once = Hostlist.parse(text), Hostlist.parse(text)
    hosts.sort()
    once.uniq()
    assert (str(hosts), str(once)) == (in_order, unique)


@pytest.mark.parametrize(
    ("text", "host", "position"),
    [
        ("tst0", "tst", -1),
        ("tst0,tst", "tst", 1),
        ("foo[1-5]-eth0", "foo3-eth0", 2),
        ("foo[1-5]", "foo3-eth0", -1),
        ("i[0-5]", "i00", -1),
        ("i[00-05]", "i04", 4),
        ("f00[7-8,10]", "f0010", 2),
        ("a,b,a", "a", 0),
    ],
)
def test_a_host_is_found_by_its_exact_name(text, host, position):
    hosts = Hostlist.parse(text)
    assert (hosts.find(host), host in hosts) == (position, position >= 0)
    if position < 0:
        with pytest.raises(HostlistError, match=f"'{host}' is not in"):
            hosts.index(host)
    else:
        assert hosts.index(host) == position


@pytest.mark.parametrize(
    ("text", "unwanted", "removed", "left"),
    [
        ("foo[2-5]", "foo6", 0, "foo[2-5]"),
        ("foo[2-5]", "foo3", 1, "foo[2,4-5]"),
        ("foo[2-5],fooi", "foo[1-2]", 1, "foo[3-5],fooi"),
        ("foo[0-7]", "foo[1,0,2-7]", 8, ""),
        ("foo[2-4]-eth2", "foo3-eth2", 1, "foo2-eth2,foo4-eth2"),
        ("a,b,a,a", "a,a", 2, "b,a"),
    ],
)
def test_deleting_removes_the_first_of_each(text, unwanted, removed, left):
    hosts, others = Hostlist.parse(text), Hostlist.parse(text)
    assert (hosts.delete(unwanted), str(hosts)) == (removed, left)
    assert (others.delete(Hostlist.parse(unwanted)), others) == (removed, hosts)


def test_appending_adds_a_text_or_a_list_and_leaves_copies_alone():
    hosts = Hostlist.parse("a1")
    copy = hosts.copy()
    assert hosts.append("a[2-3]") == 2
    assert hosts.append(copy) == 1
    assert (str(hosts), str(copy)) == ("a[1-3,1]", "a1")
    with pytest.raises(HostlistError):
        hosts.append("a[")


def test_it_is_indexed_sliced_counted_and_added_like_a_list():
    hosts = Hostlist.parse("a[1-3],b,b")
    assert (hosts[0], hosts[-1], str(hosts[1:4]), len(hosts), hosts.count("b")) == ("a1", "b", "a[2-3],b", 5, 2)
    assert str(hosts + Hostlist(["c"])) == "a[1-3],b,b,c"
    del hosts[3:]
    assert list(hosts) == ["a1", "a2", "a3"]
    assert hosts != ["a1", "a2", "a3"]
    assert repr(hosts) == "Hostlist.parse('a[1-3]')"
    with pytest.raises(IndexError):
        hosts[3]
    with pytest.raises(TypeError):
        hash(hosts)


@given(st.lists(names, max_size=12))
def test_every_list_comes_back_from_its_text(hosts):
    made = Hostlist(hosts)
    assert list(Hostlist.parse(made.encode())) == hosts
    assert Hostlist.parse(made.expand()) == made
    in_order = Hostlist(hosts)
    in_order.sort()
    assert sorted(in_order) == sorted(hosts)


@given(st.text(alphabet="ab01-,[] ", max_size=14) | st.text(max_size=14))
def test_any_text_is_a_list_or_refused(text):
    try:
        hosts = Hostlist.parse(text)
    except HostlistError:
        return
    assert Hostlist.parse(str(hosts)) == hosts
