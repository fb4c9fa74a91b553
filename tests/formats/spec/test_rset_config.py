"""Resources as the configuration lists them."""

import pytest

from headrace.formats.spec.rset import ResourceSet, RsetError


def test_config_merges_entries_of_one_host_and_ranks_hosts_by_appearance() -> None:
    rset = ResourceSet.from_config(
        [
            {"hosts": "node[0-3]", "cores": "0-1"},
            {"hosts": "node[0-2]", "properties": ["batch"]},
            {"hosts": "node3", "properties": ["debug"], "gpus": "0"},
        ]
    )
    assert rset.short_form() == "rank[0-2]/core[0-1] rank3/core[0-1],gpu0"
    assert rset.hosts == ["node0", "node1", "node2", "node3"]
    assert {name: str(ranks) for name, ranks in rset.properties.items()} == {"batch": "0-2", "debug": "3"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "resource config must be an array"),
        ([], "no hosts configured"),
        ([3], r"config\[0\]: must be a table"),
        ([{"cores": "0"}], r"config\[0\]: missing key 'hosts'"),
        ([{"hosts": ""}], r"config\[0\]: empty hostlist specified"),
        ([{"hosts": "a", "cores": "0"}, {"hosts": "b"}], "resource.config: b assigned no resources"),
        ([{"hosts": "a", "cores": "0--1"}], r"config\[0\]: invalid idset cores='0--1'"),
        ([{"hosts": "a", "cores": 4}], r"config\[0\]: cores must be a string"),
        ([{"hosts": "a", "cores": "0", "properties": "x"}], r"config\[0\]: properties must be an array"),
        ([{"hosts": "a", "cores": "0", "properties": ["a!"]}], r'config\[0\]: invalid property "a!"'),
        ([{"hosts": "a", "core": "0"}], "unknown key 'core'"),
    ],
)
def test_config_errors_name_the_entry(config: object, message: str) -> None:
    with pytest.raises(RsetError, match=message):
        ResourceSet.from_config(config)
