"""`flux.idset`, `flux.hostlist`, `ResourceSet`, `flux.uri` and constraint queries; no instance is needed."""

from __future__ import annotations

import json
import os
import sys
from typing import ClassVar

import pytest

from headrace.wire.client.installation import BINDINGS

sys.path.insert(0, BINDINGS)
from flux.constraint import parser
from flux.hostlist import Hostlist
from flux.idset import IDSET_FLAG_BRACKETS, IDSET_FLAG_RANGE, IDSET_INVALID_ID, IDset
from flux.resource import ResourceSet, Rlist
from flux.uri import JobURI


def test_an_idset_is_changed_item_by_item_and_prints_as_flags_say():
    ids = IDset("0-3")
    ids[7] = True
    ids[1] = 0
    assert (str(ids), repr(ids), ids.next(3), ids.next(7)) == ("0,2-3,7", "IDset('0,2-3,7')", 7, IDSET_INVALID_ID)
    assert (IDset().first(), ids.set(1).clear(0, 2).count()) == (IDSET_INVALID_ID, 2)
    ids.set_flags(0)
    assert (str(ids.add([4])), ids.encode(IDSET_FLAG_BRACKETS | IDSET_FLAG_RANGE)) == ("3,4,7", "[3-4,7]")
    assert str(IDset("0-9").intersect("0-5", [1, 2, 9])) == "1-2"
    assert (str(IDset(42)), str(IDset("0-9") - 5 + 12)) == ("42", "0-4,6-9,12")


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda ids: ids["a"], TypeError),
        (lambda ids: ids[-1], ValueError),
        (lambda ids: ids.__setitem__(0, 7), TypeError),
        (lambda ids: -1 in ids, ValueError),
        (lambda ids: ids.set(5, 1), ValueError),
        (lambda ids: ids == "0", TypeError),
        (lambda ids: ids.next("a"), TypeError),
        (lambda ids: ids.add(42.0), TypeError),
        (lambda ids: ids.subtract("foo"), ValueError),
    ],
)
def test_what_is_no_id_is_refused(use, error):
    with pytest.raises(error):
        use(IDset("0-3"))


def test_a_host_list_takes_texts_and_lists():
    hosts = Hostlist(["a[0-1]", "b"])
    assert (hosts.count(), hosts.append(Hostlist("a7")), hosts.append(["c", "c"]), str(hosts)) == (
        3,
        1,
        2,
        "a[0-1],b,a7,c,c",
    )
    assert (repr(hosts.uniq()), hosts.sort().expand()[0], hosts.delete("c,a0")) == ("Hostlist('a[0-1,7],b,c')", "a0", 2)
    for wrong in (42, ["a", 42]):
        with pytest.raises(TypeError):
            Hostlist(wrong)
    with pytest.raises(TypeError):
        hosts["a"]


def test_a_resource_set_is_made_of_text_objects_and_ranks():
    parts = ResourceSet(Rlist().add_rank(4, cores="0-3").add_child(4, "gpu", "0"))
    assert (str(parts), parts.nnodes, str(ResourceSet(parts.encode()))) == ("rank4/core[0-3],gpu0", 1, str(parts))
    parts.state = "up"
    assert (parts.copy().state, parts.copy_ranks("4").state, parts.properties) == ("up", "up", "")
    parts.set_property("fast").set_property("big")
    assert sorted(parts.properties.split(",")) == ["big", "fast"]
    assert json.loads(parts.get_properties()) == {"fast": "4", "big": "4"}


@pytest.mark.parametrize(
    ("arg", "error"),
    [((1, 2), TypeError), ("", ValueError), ({"version": 199}, ValueError), ({}, KeyError), ("{", ValueError)],
)
def test_what_is_no_resource_set_is_refused(arg, error):
    with pytest.raises(error):
        ResourceSet(arg)


def test_an_address_has_parts():
    remote = JobURI("ssh://host/a/b?tag=x#y")
    assert (remote.netloc, remote.path, remote.query, remote.fragment) == ("host", "/a/b", "tag=x", "y")
    assert (remote.remote, JobURI("local:///a").remote) == ("ssh://host/a/b?tag=x#y", f"ssh://{os.uname().nodename}/a")
    assert (remote.local, JobURI("local:///a", remote_hostname="h").remote) == ("local:///a/b", "ssh://h/a")
    with pytest.raises(ValueError, match="neither"):
        _ = JobURI("foo:///a").remote
    with pytest.raises(ValueError, match="must be"):
        JobURI("")


class Query(parser.ConstraintParser):
    operator_map: ClassVar = {None: "t", "a": "other"}
    split_values: ClassVar = {"t": ","}
    combined_terms: ClassVar = {"t"}


def test_a_query_has_the_operators_of_its_class(capsys):
    assert Query().parse("x,y z | a:b") == {"or": [{"t": ["x", "y", "z"]}, {"other": ["b"]}]}
    with pytest.raises(parser.ConstraintSyntaxError, match="operator"):
        parser.ConstraintParser().parse("x")
    assert parser.main(["--default-op=test", "--debug", "a|-b"]) == 0
    out = capsys.readouterr()
    assert json.loads(out.out) == {"or": [{"test": ["a"]}, {"not": [{"test": ["b"]}]}]}
    assert out.err.startswith("TOKEN: ")
    assert parser.main(["x"]) == 1
