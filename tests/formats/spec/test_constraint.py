"""Constraints: the objects of RFC 31 and the queries of RFC 35."""

from typing import Any, Dict, List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.spec import constraint
from headrace.formats.spec.constraint import ConstraintError, ConstraintSyntaxError, Syntax

NAMES = Syntax(operators={None: "name"})


# -- objects


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        ({}, True),
        ({"and": []}, True),
        ({"or": []}, True),
        ({"not": []}, False),
        ({"properties": ["fast"]}, True),
        ({"properties": ["fast", "big"]}, False),
        ({"properties": ["^fast"]}, False),
        ({"properties": ["^big"]}, True),
        ({"hostlist": ["a", "n[1-3]"]}, True),
        ({"hostlist": ["a"]}, False),
        ({"ranks": ["0-1", "2"]}, True),
        ({"ranks": ["3-9"]}, False),
        ({"not": [{"ranks": ["3-9"]}]}, True),
        ({"and": [{"ranks": ["2"]}, {"properties": ["big"]}]}, False),
        ({"or": [{"ranks": ["7"]}, {"properties": ["fast"]}]}, True),
        ({"properties": ["fast"], "ranks": ["7"]}, False),
    ],
)
def test_match_follows_rfc_31(obj: Dict[str, Any], expected: bool) -> None:
    assert constraint.match(obj, 2, "n2", {"fast"}) is expected


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ([], "constraint: must be an object"),
        ({"foo": []}, "unknown constraint operator: foo"),
        ({"and": {}}, "constraint.and: must be an array"),
        ({"and": [3]}, r"constraint.and\[0\]: must be an object"),
        ({"not": [{"properties": [1]}]}, r"constraint.not\[0\].properties\[0\]: a property must be a string"),
        ({"properties": ["a|b"]}, r"invalid character '\|' in property \"a\|b\""),
        ({"properties": ["^"]}, "a property must have a name"),
        ({"hostlist": ["a["]}, r"constraint.hostlist\[0\]: invalid hostlist"),
        ({"hostlist": [3]}, r"constraint.hostlist\[0\]: must be a host list"),
        ({"ranks": ["1-"]}, r"constraint.ranks\[0\]: invalid idset"),
        ({"ranks": [1]}, r"constraint.ranks\[0\]: must be an idset string"),
    ],
)
def test_errors_name_the_term(obj: object, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        constraint.validate(obj)


def test_deep_nesting_is_refused_not_a_crash() -> None:
    obj: Dict[str, Any] = {}
    for _ in range(5000):
        obj = {"not": [obj]}
    with pytest.raises(ConstraintError, match="nested deeper"):
        constraint.validate(obj)


def test_terms_lists_the_leaves() -> None:
    obj = constraint.parse("host:a[1-2] and not (rank:3 or fast)")
    assert list(constraint.terms(obj)) == [("hostlist", "a[1-2]"), ("ranks", "3"), ("properties", "fast")]


# -- queries


@pytest.mark.parametrize(
    ("text", "obj"),
    [
        ("foo", {"name": ["foo"]}),
        ("foo bar", {"and": [{"name": ["foo"]}, {"name": ["bar"]}]}),
        ("foo bar state:started", {"and": [{"name": ["foo"]}, {"name": ["bar"]}, {"state": ["started"]}]}),
        ("a|b|c", {"or": [{"name": ["a"]}, {"name": ["b"]}, {"name": ["c"]}]}),
        ("a|b&c", {"or": [{"name": ["a"]}, {"and": [{"name": ["b"]}, {"name": ["c"]}]}]}),
        ("(a|b)&c", {"and": [{"or": [{"name": ["a"]}, {"name": ["b"]}]}, {"name": ["c"]}]}),
        ("(a|-b)&c", {"and": [{"or": [{"name": ["a"]}, {"not": [{"name": ["b"]}]}]}, {"name": ["c"]}]}),
        ("a and b or not c", {"or": [{"and": [{"name": ["a"]}, {"name": ["b"]}]}, {"not": [{"name": ["c"]}]}]}),
        ("a && b || c", {"or": [{"and": [{"name": ["a"]}, {"name": ["b"]}]}, {"name": ["c"]}]}),
        ("not a b", {"and": [{"not": [{"name": ["a"]}]}, {"name": ["b"]}]}),
        ("foo:'this is args'", {"foo": ["this is args"]}),
        ('"a b"', {"name": ["a b"]}),
        ("android order nothing", {"and": [{"name": ["android"]}, {"name": ["order"]}, {"name": ["nothing"]}]}),
        ("state:a:b", {"state": ["a:b"]}),
    ],
)
def test_parse_gives_the_objects_of_rfc_35(text: str, obj: Dict[str, Any]) -> None:
    assert constraint.parse(text, NAMES) == obj


@pytest.mark.parametrize(
    ("text", "obj"),
    [
        (
            "fast and not (slow or host:a[1-2])",
            {
                "and": [
                    {"properties": ["fast"]},
                    {"not": [{"or": [{"properties": ["slow"]}, {"hostlist": ["a[1-2]"]}]}]},
                ]
            },
        ),
        ("^debug", {"properties": ["^debug"]}),
        ("rank:1", {"ranks": ["1"]}),
        ("hosts:a rank:2", {"and": [{"hostlist": ["a"]}, {"ranks": ["2"]}]}),
        ("a,b c", {"properties": ["a", "b", "c"]}),
    ],
)
def test_requires_makes_what_flux_makes(text: str, obj: Dict[str, Any]) -> None:
    assert constraint.parse(text) == obj


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(", "Unclosed parenthesis in position 0"),
        ("a (b", "Unclosed parenthesis in position 2"),
        (")", "Mismatched parentheses starting at position 0."),
        ("a)", "Mismatched parentheses starting at position 1."),
        ("", "Unexpected end of input in ''"),
        ("a and", "Unexpected end of input in 'a and'"),
        ("a or | b", r"Invalid token '|' at position 5"),
        ("-(a|b)", "Invalid token '(' at position 1"),
        ("()", "Invalid token ')' at position 1"),
        ("'a", 'Unclosed quote "\'" at position 1'),
        ('x "a', "Unclosed quote '\"' at position 3"),
        ("host:", "Missing argument to token 'host:'"),
        ("a%:b", "invalid character '%' in operator 'a%:'"),
    ],
)
def test_syntax_errors_say_where(text: str, message: str) -> None:
    with pytest.raises(ConstraintSyntaxError) as caught:
        constraint.parse(text)
    assert str(caught.value) == message


def test_a_bare_term_needs_a_default_operator() -> None:
    with pytest.raises(ConstraintSyntaxError, match='Missing required operator in "x"'):
        constraint.parse("x", Syntax())


def test_deep_parentheses_are_refused_not_a_crash() -> None:
    with pytest.raises(ConstraintSyntaxError, match="nested deeper"):
        constraint.parse("(" * 5000 + "a" + ")" * 5000)


# -- properties

_leaf = st.one_of(
    st.lists(st.sampled_from(["p", "q", "^p"]), max_size=2).map(lambda v: {"properties": v}),
    st.lists(st.sampled_from(["h0", "h[1-2]"]), max_size=2).map(lambda v: {"hostlist": v}),
    st.lists(st.sampled_from(["0", "1-3"]), max_size=2).map(lambda v: {"ranks": v}),
)
_tree = st.recursive(
    _leaf,
    lambda inner: st.tuples(st.sampled_from(["and", "or", "not"]), st.lists(inner, max_size=3)).map(
        lambda pair: {pair[0]: pair[1]}
    ),
    max_leaves=6,
)


@given(_tree)
@settings(max_examples=80)
def test_all_ranks_at_once_give_what_each_alone_gives(obj: Dict[str, List[Any]]) -> None:
    hosts = {f"h{rank}": 1 << rank for rank in range(5)}
    props = {"p": 0b00110, "q": 0b01010}
    found = constraint.compile(obj)(0b11111, lambda name: hosts.get(name, 0), props)
    for rank in range(5):
        mine = {name for name, bits in props.items() if bits >> rank & 1}
        assert bool(found >> rank & 1) == constraint.match(obj, rank, f"h{rank}", mine)


@given(st.text(alphabet="ab:()|&-'\" not or and,^", max_size=20))
@settings(max_examples=200)
def test_any_text_is_a_constraint_or_a_syntax_error(text: str) -> None:
    try:
        obj = constraint.parse(text)
    except ConstraintSyntaxError:
        return
    assert isinstance(obj, dict) and obj


_json = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["and", "or", "not", "ranks", "hostlist", "properties", "x"]), inner, max_size=2
        )
    ),
    max_leaves=8,
)


@given(_json)
@settings(max_examples=150)
def test_any_json_is_a_constraint_or_a_constraint_error(obj: object) -> None:
    try:
        matcher = constraint.compile(obj)
    except ConstraintError:
        return
    assert 0 <= matcher(0b111, lambda name: 1, {"p": 2}) <= 0b111


@pytest.mark.parametrize(
    ("table", "obj"),
    [
        ({}, None),
        ({"requires": []}, None),
        ({"hosts": "all"}, None),
        ({"requires": ["a", "b"]}, {"properties": ["a", "b"]}),
        ({"hosts": "n[0-2]"}, {"hostlist": ["n[0-2]"]}),
        ({"requires": ["a"], "hosts": "n0"}, {"and": [{"properties": ["a"]}, {"hostlist": ["n0"]}]}),
    ],
)
def test_a_queue_demands_properties_and_hosts(table: Dict[str, Any], obj: Any) -> None:
    assert constraint.of_queue(table) == obj


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"requires": "a"}, r"q\.requires: must be an array of property names, not 'a'"),
        ({"hosts": ["n0"]}, r"q\.hosts: must be a hostlist or 'all', not \['n0'\]"),
        ({"hosts": "n["}, r"q\.hosts: "),
    ],
)
def test_a_queue_with_a_wrong_demand_is_refused(table: Dict[str, Any], message: str) -> None:
    with pytest.raises(constraint.ConstraintError, match=message):
        constraint.of_queue(table, "q")


def test_ranks_that_there_are_not_cost_nothing() -> None:
    """Each of these sets would have 2 MiB."""
    wide = constraint.compile({"or": [{"ranks": [f"{low}-16000000"]} for low in range(3000)]})
    assert wide(0b1011, lambda _name: 0, {}) == 0b1011
    gaps = ",".join(str(id_) for id_ in range(0, 100, 3)) + ",16000000"
    assert constraint.compile({"ranks": [gaps]})(0b1111111, lambda _name: 0, {}) == 0b1001001
    assert constraint.compile({"ranks": ["9-10"]})(0b1111, lambda _name: 0, {}) == 0
    assert constraint.compile({"ranks": ["0"]})(0, lambda _name: 0, {}) == 0


@pytest.mark.parametrize(
    ("obj", "size"),
    [
        ({"properties": ["a", "b"]}, 4),
        ({"ranks": ["0-16000000,16000002"]}, 5),
        ({"and": [{"hostlist": ["h[0-99],x"]}, {"not": [{"hostlist": ["y"]}]}]}, 112),
        ({"hostlist": ["h[", 7], "and": 3}, 5),
        (None, 1),
    ],
)
def test_the_size_of_a_constraint_is_known_before_it_is_compiled(obj: Any, size: int) -> None:
    assert constraint.size(obj) == size


def test_a_short_constraint_cannot_name_hosts_without_end() -> None:
    many = [f"h{number}-[0-99999]" for number in range(11)]
    with pytest.raises(ConstraintError, match="names more than 1048576 hosts in all"):
        constraint.compile({"hostlist": many})
    with pytest.raises(ConstraintError, match="names more than 1048576 hosts in all"):
        constraint.compile({"or": [{"hostlist": [one]} for one in many]})
    assert constraint.compile({"or": [{"hostlist": [one]} for one in many[:2]]})
