"""Dependencies in their compact form."""

from typing import Any, Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec import dependency
from headrace.formats.spec.dependency import DependencyError


@pytest.mark.parametrize(
    ("text", "obj"),
    [
        ("afterok:f1", {"scheme": "afterok", "value": "f1"}),
        ("after:1", {"scheme": "after", "value": "1"}),
        ("string:foo?type=out", {"scheme": "string", "value": "foo", "type": "out"}),
        ("string:a?type=in&scope=user", {"scheme": "string", "value": "a", "type": "in", "scope": "user"}),
        ("string:a?type=in;scope=user", {"scheme": "string", "value": "a", "type": "in", "scope": "user"}),
        ("x:y?k=1&k=2", {"scheme": "x", "value": "y", "k": ["1", "2"]}),
        ("begin-time:1:2", {"scheme": "begin-time", "value": "1:2"}),
        ("fluid:hungry-hippos", {"scheme": "fluid", "value": "hungry-hippos"}),
        ("singleton", {"scheme": "singleton", "value": ""}),
        ("after:", {"scheme": "after", "value": ""}),
    ],
)
def test_parse_and_encode(text: str, obj: Dict[str, Any]) -> None:
    assert dependency.parse(text) == obj
    assert dependency.parse(dependency.encode(obj)) == obj


@pytest.mark.parametrize("text", ["", "afterok", ":1", "a:b?", "a:b?c", "a:b?value=2"])
def test_wrong_text_is_shown(text: str) -> None:
    with pytest.raises(DependencyError, match="Invalid dependency URI"):
        dependency.parse(text)


@pytest.mark.parametrize("obj", [None, {}, {"scheme": "a"}, {"scheme": 1, "value": "x"}])
def test_wrong_objects_are_refused(obj: object) -> None:
    with pytest.raises(DependencyError, match="must be"):
        dependency.validate(obj)


_word = st.text(alphabet="abc1=&; %ƒ+", min_size=1, max_size=6)


@given(st.dictionaries(_word, _word, max_size=3))
def test_options_survive_a_round_trip(options: Dict[str, str]) -> None:
    obj = {"scheme": "s", "value": "v", **options}
    assert dependency.parse(dependency.encode(obj)) == obj


@given(st.text(max_size=15) | st.text(alphabet="ab:?=&%", max_size=12))
def test_any_text_is_a_dependency_or_an_error(text: str) -> None:
    try:
        dependency.validate(dependency.parse(text))
    except DependencyError:
        return
