"""Hostlists (RFC 29): what texts name, how lists are written, and operations on them."""

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.hostlist import MAX_HOSTS, MAX_NAME, Hostlist, HostlistError, count_hosts, first_host

# Few prefixes and small numbers, so that drawn lists have runs, repetitions and differently padded neighbours.
NAMES = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "gpu", "rack7-", "n.east-"]),
    st.integers(0, 12).map(str) | st.integers(0, 12).map("{:02}".format) | st.sampled_from(["", "099", "100"]),
    st.sampled_from(["", "", "-ib"]),
).filter(bool)
LISTS = st.lists(NAMES, max_size=14)


def peak_of(call):
    """The most bytes of Python objects that are alive during a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# -- reading


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("login", ["login"]),
        ("login,storage,login", ["login", "storage", "login"]),
        ("cn[9-11]", ["cn9", "cn10", "cn11"]),
        ("cn[7,3,3,20-21]", ["cn7", "cn3", "cn3", "cn20", "cn21"]),
        ("[14-16]", ["14", "15", "16"]),
        ("r2c[0-1]s3.hsn", ["r2c0s3.hsn", "r2c1s3.hsn"]),
        ("a[2],b[2-2]", ["a2", "b2"]),
        (",,a,", ["a"]),
    ],
)
def test_a_text_names_hosts_in_its_order(text, hosts):
    assert list(Hostlist.parse(text)) == hosts


@pytest.mark.parametrize(
    ("ids", "expanded"),
    [
        ("008-011", "008,009,010,011"),
        ("08,9,100", "08,09,100"),
        ("00-2", "00,01,02"),
        ("0,7", "0,7"),
        ("95,096", "95,096"),
        ("098-101,5", "098,099,100,101,005"),
    ],
)
def test_leading_zeros_of_the_first_id_pad_all_ids(ids, expanded):
    assert Hostlist.parse(f"[{ids}]").expand() == expanded
    assert Hostlist.parse(f"n[{ids}]").expand(" ") == " ".join("n" + digits for digits in expanded.split(","))


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("node[]", 4),
        ("[],node", 0),
        ("node[3", 0),
        ("login,node[3-4", 6),
        ("node3]", 0),
        ("login,node[[3]]", 6),
        ("rack[1]node[2]", 0),
        ("node[three]", 5),
        ("node[3-]", 6),
        ("node[-3]", 5),
        ("node[3--4]", 6),
        ("node[4,,5]", 7),
        ("node[4,5,]", 8),
        ("node[12-9]", 5),
        ("login node", 5),
        ("node[1, 2]", 7),
        ("login\t", 5),
        ("nœud", 1),
        ("node[1000000000000000000]", 5),
    ],
)
def test_text_that_breaks_the_rfc_is_refused_at_its_position(text, position):
    with pytest.raises(HostlistError, match=rf" {position}\b"):
        Hostlist.parse(text)


@pytest.mark.parametrize(
    "text", [f"n[1-{MAX_HOSTS + 1}]", f"n[1-{MAX_HOSTS}],login", f"n[7,1-{MAX_HOSTS}]", "n[5-800000000000]"]
)
def test_more_hosts_than_any_list_holds_are_refused(text):
    with pytest.raises(HostlistError, match="more than"):
        Hostlist.parse(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (",,login,", 1),
        ("login,login", 2),
        ("n[3]", 1),
        ("n[008-011,7],r2c[0-1]s3", 7),
        (f"n[1-{MAX_HOSTS}]", MAX_HOSTS),
        (f"n[0-{10**17}]", 10**17 + 1),
    ],
)
def test_hosts_are_counted_without_being_made(text, count):
    assert peak_of(lambda: count_hosts(text, 10**18)) < 20_000
    assert count_hosts(text, 10**18) == count
    assert count_hosts(text, limit=count) == count
    if count:
        with pytest.raises(HostlistError, match=f"more than {count - 1} hosts"):
            count_hosts(text, limit=count - 1)


@pytest.mark.parametrize(
    "text", ["n[0-999999]", "a,b,c[1-3],d[1-8]", "a,b,c,d,e,f,g,h,i,j,k", ",".join(["n[0-9]"] * 5000)]
)
def test_a_list_beyond_its_readers_limit_is_refused_before_a_name_is_made(text):
    def read():
        with pytest.raises(HostlistError, match="more than 10 hosts"):
            Hostlist.parse(text, limit=10)

    assert peak_of(read) < 200_000


@pytest.mark.parametrize("text", ["{}", "{}[0-9]", "n[0-9]{}", "n[5,0-100000]{}"])
def test_a_name_longer_than_any_host_has_is_refused_before_it_is_repeated(text):
    def read():
        with pytest.raises(HostlistError, match=f"more than {MAX_NAME} characters"):
            Hostlist.parse(f"login,{text.format('x' * 60_000)}")

    assert peak_of(read) < 1_000_000
    assert len(Hostlist.parse(text.format("x" * (MAX_NAME - 7))))


@given(LISTS)
def test_a_list_is_as_long_as_its_text_is_counted(hosts):
    assert count_hosts(Hostlist(hosts).encode()) == len(hosts)


@pytest.mark.parametrize(("text", "first"), [(",login,n[1-2]", "login"), ("n[08-999999]x,a", "n08x"), ("[7]", "7")])
def test_the_first_host_is_known_without_the_others(text, first):
    assert first_host(text) == first
    assert peak_of(lambda: first_host(text)) < 20_000


def test_an_empty_list_has_no_first_host():
    with pytest.raises(HostlistError, match="no first host"):
        first_host(",")


def test_as_many_hosts_as_a_list_holds_are_read():
    assert len(Hostlist.parse(f"n[1-{MAX_HOSTS}]")) == MAX_HOSTS


# -- writing


@pytest.mark.parametrize(
    ("hosts", "encoded"),
    [
        ([], ""),
        (["login"], "login"),
        (["cn4"], "cn4"),
        (["cn4", "cn5", "cn6", "cn9"], "cn[4-6,9]"),
        (["cn9", "cn6", "cn5"], "cn[9,6,5]"),
        (["cn4", "cn4"], "cn[4,4]"),
        (["login", "login"], "login,login"),
        (["cn4", "gpu5", "cn5"], "cn4,gpu5,cn5"),
        (["cn4", "login", "cn5", "cn6"], "cn4,login,cn[5-6]"),
        (["31", "32", "40"], "[31-32,40]"),
        # What follows the number keeps a host out of brackets; digits within the prefix do not.
        (["cn4-ib", "cn5-ib"], "cn4-ib,cn5-ib"),
        (["r1n4", "r1n5", "r2n5"], "r1n[4-5],r2n5"),
        # Padded numbers join a run that keeps its width, and an unpadded first number can be followed by a padded one.
        (["cn08", "cn09", "cn10"], "cn[08-10]"),
        (["cn099", "cn100"], "cn[099-100]"),
        (["cn9", "cn10"], "cn[9-10]"),
        (["cn07", "cn8"], "cn07,cn8"),
        (["cn7", "cn08"], "cn[7,08]"),
        (["cn" + "8" * 20, "cn" + "8" * 19 + "9"], "cn" + "8" * 20 + ",cn" + "8" * 19 + "9"),
    ],
)
def test_neighbours_that_differ_in_their_last_number_share_brackets(hosts, encoded):
    made = Hostlist(hosts)
    assert (made.encode(), str(made), Hostlist.parse(encoded)) == (encoded, encoded, made)


@given(LISTS)
def test_every_list_comes_back_from_its_text(hosts):
    made = Hostlist(hosts)
    assert list(made) == list(Hostlist.parse(made.encode())) == list(Hostlist.parse(made.expand())) == hosts


@given(st.text(alphabet="cn07-,[] ", max_size=14) | st.text(max_size=14))
def test_any_text_is_a_list_or_refused(text):
    try:
        hosts = Hostlist.parse(text)
    except HostlistError:
        return
    assert Hostlist.parse(str(hosts)) == hosts


# -- order


@pytest.mark.parametrize(
    ("text", "in_order"),
    [
        ("storage,gpu,login", "gpu,login,storage"),
        ("cn[30,4],cn12", "cn[4,12,30]"),
        ("gpu2,cn2,gpu1,cn1", "cn[1-2],gpu[1-2]"),
        ("cn2,cn,cn1", "cn,cn[1-2]"),
        ("cn[4-6],cn[5-8]", "cn[4-5,5-6,6-8]"),
        ("[22-23],[20-21]", "[20-23]"),
        # Written after an unpadded id, 08 and 09 still are the padded hosts cn08 and cn09.
        ("cn[10-11,08-09]", "cn[08-11]"),
        ("cn[010-011],cn[008-009]", "cn[008-011]"),
    ],
)
def test_hosts_are_ordered_by_prefix_then_by_number(text, in_order):
    hosts = Hostlist.parse(text)
    hosts.sort()
    assert str(hosts) == in_order


def test_one_number_written_in_two_widths_is_two_hosts():
    hosts = Hostlist.parse("cn[5-6],cn[05-06],cn5")
    hosts.uniq()
    assert list(hosts) == ["cn5", "cn6", "cn05", "cn06"]


@given(LISTS)
def test_sorting_keeps_every_host_and_gives_one_order_for_all_arrangements(hosts):
    one, other = Hostlist(hosts), Hostlist(reversed(hosts))
    one.sort()
    other.sort()
    assert one == other
    assert Counter(one) == Counter(hosts)
    of_one_width = {}
    for host in one:
        prefix = host.rstrip("0123456789")
        of_one_width.setdefault((prefix, len(host)), []).append(host[len(prefix) :])
    assert all(digits == sorted(digits) for digits in of_one_width.values())
    prefixes = [host.rstrip("0123456789") for host in one]
    assert prefixes == sorted(prefixes)


@given(LISTS)
def test_uniq_is_the_ordered_set_of_hosts(hosts):
    once = Hostlist(hosts)
    once.uniq()
    in_order = Hostlist(set(hosts))
    in_order.sort()
    assert once == in_order


# -- finding and deleting


@pytest.mark.parametrize(
    ("text", "host", "position"),
    [
        ("login,cn[3-6]", "cn3", 1),
        ("cn[3-6]-ib", "cn5-ib", 2),
        ("cn[3-6]-ib", "cn5", -1),
        ("cn[3-6]", "cn5-ib", -1),
        ("cn[3-6]", "cn", -1),
        ("cn,cn3", "cn3", 1),
        ("cn[03-06]", "cn05", 2),
        ("cn[03-06]", "cn5", -1),
        ("cn[3-6]", "cn05", -1),
        ("r1n[1,11,111]", "r1n11", 1),
        ("login,cn3,login", "login", 0),
        ("", "login", -1),
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


@given(LISTS, NAMES)
def test_find_gives_the_first_position_in_the_expansion(hosts, host):
    made = Hostlist(hosts)
    assert made.find(host) == (hosts.index(host) if host in hosts else -1)
    assert made.count(host) == hosts.count(host)


@pytest.mark.parametrize(
    ("text", "unwanted", "removed", "left"),
    [
        ("cn[3-6]", "cn9", 0, "cn[3-6]"),
        ("cn[3-6]", "cn4", 1, "cn[3,5-6]"),
        ("cn[3-6],login", "login,cn[6-8]", 2, "cn[3-5]"),
        ("cn[3-6]", "cn[6,4,3,5]", 4, ""),
        ("cn[3-6]-ib", "cn[4-5]-ib", 2, "cn3-ib,cn6-ib"),
        ("gpu1,cn1,gpu1,gpu1", "gpu1,gpu1", 2, "cn1,gpu1"),
        ("cn[03-04]", "cn3", 0, "cn[03-04]"),
    ],
)
def test_deleting_removes_the_first_of_each(text, unwanted, removed, left):
    hosts, others = Hostlist.parse(text), Hostlist.parse(text)
    assert (hosts.delete(unwanted), str(hosts)) == (removed, left)
    assert (others.delete(Hostlist.parse(unwanted)), others) == (removed, hosts)


@given(LISTS, LISTS)
def test_deleting_is_the_difference_of_multisets_and_keeps_the_order(hosts, unwanted):
    made = Hostlist(hosts)
    removed = made.delete(Hostlist(unwanted))
    assert Counter(made) == Counter(hosts) - Counter(unwanted)
    assert removed == len(hosts) - len(made)
    # The last occurrences stay, so what is left reads backwards as the original read backwards.
    left, backwards = Counter(made), []
    for host in reversed(hosts):
        if left[host]:
            left[host] -= 1
            backwards.append(host)
    assert list(made) == backwards[::-1]


# -- as a list


def test_appending_adds_a_text_or_a_list_and_leaves_copies_alone():
    hosts = Hostlist.parse("cn8")
    copy = hosts.copy()
    assert hosts.append("cn[9-10],login") == 3
    assert hosts.append(copy) == 1
    assert hosts.append("") == 0
    assert (str(hosts), str(copy)) == ("cn[8-10],login,cn8", "cn8")
    with pytest.raises(HostlistError):
        hosts.append("cn[")
    assert len(hosts) == 5


def test_it_is_indexed_sliced_counted_and_added_like_a_list():
    hosts = Hostlist.parse("cn[4-6],login,login")
    assert (hosts[0], hosts[-1], str(hosts[1:4])) == ("cn4", "login", "cn[5-6],login")
    assert (len(hosts), hosts.count("login")) == (5, 2)
    assert str(hosts + Hostlist(["gpu0"])) == "cn[4-6],login,login,gpu0"
    del hosts[3:]
    assert list(hosts) == ["cn4", "cn5", "cn6"]
    assert hosts != ["cn4", "cn5", "cn6"]
    assert repr(hosts) == "Hostlist.parse('cn[4-6]')"
    with pytest.raises(IndexError):
        hosts[3]
    with pytest.raises(TypeError):
        hash(hosts)
