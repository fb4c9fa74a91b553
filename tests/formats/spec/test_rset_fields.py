"""Reading the fields of R: what is right, and errors that name what is not."""

from typing import Dict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.spec.rset import ResourceSet, RsetError


def r_obj(**execution: object) -> Dict[str, object]:
    return {"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-1"}}], **execution}}


def test_entries_of_one_rank_are_merged() -> None:
    entries = [{"rank": "0-1", "children": {"core": "0"}}, {"rank": "1", "children": {"core": "1", "gpu": "0"}}]
    assert ResourceSet.from_obj(r_obj(R_lite=entries)).short_form() == "rank0/core0 rank1/core[0-1],gpu0"


@pytest.mark.parametrize(
    ("obj", "where"),
    [
        ([], "R: must be an object"),
        ({}, "version: must be 1"),
        ({"version": True}, "version: must be 1"),
        ({"version": 1}, "execution: must be an object"),
        ({"version": 1, "execution": {}}, "execution.R_lite: must be an array"),
        (r_obj(R_lite=[3]), r"execution.R_lite\[0\]: must be an object"),
        (r_obj(R_lite=[{"rank": 0, "children": {}}]), r"execution.R_lite\[0\].rank: must be an idset string"),
        (r_obj(R_lite=[{"rank": "x", "children": {}}]), r"execution.R_lite\[0\].rank: "),
        (r_obj(R_lite=[{"rank": "0"}]), r"execution.R_lite\[0\].children: must be an object"),
        (r_obj(R_lite=[{"rank": "0", "children": {"core": 1}}]), r"children.core: must be an idset"),
        (r_obj(R_lite=[{"rank": "99999999", "children": {}}]), "beyond"),
        (r_obj(starttime=-1), "execution.starttime: must be seconds"),
        (r_obj(expiration="soon"), "execution.expiration: must be seconds"),
        (r_obj(starttime=5, expiration=4), "execution.expiration: 4 must be after starttime 5"),
        (r_obj(nslots=-1), "execution.nslots: "),
        (r_obj(nodelist="a,b"), "execution.nodelist: must be an array"),
        (r_obj(nodelist=["a"]), "execution.nodelist: names 1 hosts, but the set has 2 ranks"),
        (r_obj(properties=["a"]), "execution.properties: must be an object"),
        (r_obj(properties={"a|b": "0"}), "invalid property"),
    ],
)
def test_errors_name_the_field(obj: object, where: str) -> None:
    with pytest.raises(RsetError, match=where):
        ResourceSet.from_obj(obj)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "R_lite": st.lists(st.fixed_dictionaries({"rank": _json, "children": _json}) | _json, max_size=3) | _json,
            "nodelist": _json,
            "properties": _json,
            "starttime": _json,
            "expiration": _json,
            "nslots": _json,
        },
    )
)
@settings(max_examples=80)
def test_any_json_is_a_set_or_an_rset_error(execution: Dict[str, object]) -> None:
    try:
        rset = ResourceSet.from_obj({"version": 1, "execution": execution})
    except RsetError:
        return
    assert ResourceSet.from_obj(rset.to_obj()) == rset
