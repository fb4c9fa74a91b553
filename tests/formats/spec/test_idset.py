"""Idsets (RFC 22): reading, writing and the algebra of sets."""

import pickle
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.idset import MAX_ID, Idset, IdsetError, parse_ranges

ids = st.sets(st.integers(0, 300) | st.integers(0, 1 << 18), max_size=150)


@pytest.mark.parametrize(
    ("text", "members", "encoded"),
    [
        ("", [], ""),
        ("[]", [], ""),
        ("0", [0], "0"),
        ("[17]", [17], "17"),
        ("1,2,3,5,6,42", [1, 2, 3, 5, 6, 42], "1-3,5-6,42"),
        ("1-3,5-6,42", [1, 2, 3, 5, 6, 42], "1-3,5-6,42"),
        ("[1-3,5-6,42]", [1, 2, 3, 5, 6, 42], "1-3,5-6,42"),
        ("7-7", [7], "7"),
        ("4,786433", [4, 786433], "4,786433"),
    ],
)
def test_texts_of_the_rfc_name_these_ids(text, members, encoded):
    parsed = Idset.parse(text)
    assert (list(parsed), parsed.encode(), len(parsed)) == (members, encoded, len(members))


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("x", 0),
        ("1,x", 2),
        ("1,", 1),
        (",1", 0),
        ("1,,2", 2),
        ("01", 1),
        ("1-02", 3),
        ("1-", 1),
        ("-1", 0),
        ("1--2", 1),
        ("1 ,2", 1),
        ("1\n", 1),
        ("٣", 0),
        ("3-1", 0),
        ("2,1", 2),
        ("1,1", 2),
        ("0-5,5", 4),
        ("[1", 0),
        ("1]", 1),
        ("[", 0),
        ("[[1]]", 1),
    ],
)
def test_text_that_breaks_the_rfc_is_refused_at_its_position(text, position):
    with pytest.raises(IdsetError, match=rf" {position}\b"):
        Idset.parse(text)


@pytest.mark.parametrize("text", [str(MAX_ID + 1), f"0-{MAX_ID + 1}", "9" * 5000, "0-" + "9" * 5000])
def test_an_id_beyond_the_largest_is_refused(text):
    with pytest.raises(IdsetError):
        Idset.parse(text)


@pytest.mark.parametrize("text", ["12", "0-12", "3,5-12", "[0,500-99999999999999999999999]"])
def test_an_id_beyond_the_largest_that_a_reader_takes_is_refused(text):
    with pytest.raises(IdsetError, match="is beyond 11"):
        Idset.parse(text, largest=11)
    with pytest.raises(IdsetError, match="is beyond 11"):
        parse_ranges(text, 11)


def test_ranges_are_read_without_making_a_set():
    assert parse_ranges("") == []
    assert parse_ranges("[0-1,7,100-16000000]") == [(0, 1), (7, 7), (100, 16_000_000)]
    assert Idset.from_ranges(parse_ranges("0-1,7")) == Idset.parse("0-1,7", largest=7)


@pytest.mark.parametrize("members", [[-1], [MAX_ID + 1], range(-1, 5), range(MAX_ID + 2), [-1, *range(0, 400, 2)]])
def test_a_set_of_ids_out_of_range_cannot_be_made(members):
    with pytest.raises(IdsetError):
        Idset(members)


def test_brackets_are_put_around_more_than_one_id_only():
    assert [Idset.parse(text).encode(brackets=True) for text in ("", "3", "3-4", "1,5")] == ["", "3", "[3-4]", "[1,5]"]


def test_the_largest_set_is_read_and_written():
    everything = f"0-{MAX_ID}"
    assert (Idset.parse(everything).encode(), len(Idset.parse(everything))) == (everything, MAX_ID + 1)
    assert list(islice(Idset.parse(everything), 3)) == [0, 1, 2]


def test_the_empty_set_is_false_and_has_no_ends():
    assert not Idset()
    for end in ("first", "last"):
        with pytest.raises(IdsetError):
            getattr(Idset(), end)


def test_first_and_last_are_the_ends():
    assert (Idset.parse("3-9,12").first, Idset.parse("3-9,12").last) == (3, 12)


def test_membership_knows_only_the_ids():
    some = Idset.parse("0,3")
    assert [member in some for member in (0, 1, 3, 4, -1, 1 << 30, "0", None)] == [True, False, True] + [False] * 5


def test_ranges_come_in_any_order_and_overlap():
    assert str(Idset.from_ranges([(5, 9), (0, 1), (7, 12)])) == "0-1,5-12"


def test_equal_sets_are_one_key_and_survive_pickling():
    one = Idset.parse("1-3")
    assert {one: "x"}[Idset([3, 2, 1, 1])] == "x"
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != {1, 2, 3}
    assert repr(one) == "Idset.parse('1-3')"


@given(ids)
def test_every_set_comes_back_from_its_text(members):
    made = Idset(members)
    assert list(made) == sorted(members)
    assert Idset.parse(made.encode()) == Idset.parse(made.encode(brackets=True)) == Idset(made) == made
    assert made.bits == sum(1 << id_ for id_ in members)


@given(ids, ids)
def test_operators_do_what_those_of_sets_do(left, right):
    a, b = Idset(left), Idset(right)
    assert set(a | b) == left | right
    assert set(a & b) == left & right
    assert set(a - b) == left - right
    assert set(a ^ b) == left ^ right
    assert (a <= b, a >= b, a == b) == (left <= right, left >= right, left == right)
    assert a.isdisjoint(b) == left.isdisjoint(right)


@given(st.text(alphabet="0123456789,-[] x", max_size=12) | st.text(max_size=12))
def test_any_text_is_a_set_or_refused(text):
    try:
        parsed = Idset.parse(text)
    except IdsetError:
        return
    assert Idset.parse(parsed.encode()) == parsed
