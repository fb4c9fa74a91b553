"""Whatever is typed at resource-query is answered or refused: no command ends it, and nothing given is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sched.graph import Graph, Scheduler
from headrace.sched.graph.formats.writers import WRITERS
from headrace.sched.graph.policies import POLICIES
from headrace.sched.graph.query_commands import Commands


def machine() -> Graph:
    """Two racks of two nodes with sockets, cores, GPUs and memory; one node has properties and no rank."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(4):
        if n % 2 == 0:
            rack = graph.add("rack", root, id=n // 2)
        node = graph.add(
            "node", rack, id=n, rank=n if n < 3 else -1, properties={} if n else {"fast": "", "arena": "7"}
        )
        for s in range(2):
            socket = graph.add("socket", node, id=s, rank=n)
            for c in range(2):
                graph.add("core", socket, id=2 * s + c, rank=n)
            graph.add("gpu", socket, id=s, rank=n)
            graph.add("memory", socket, id=s, rank=n, size=4, unit="GB")
    return graph.finish()


def resource(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    count = st.one_of(
        st.integers(-1, 5),
        st.fixed_dictionaries(
            {"min": st.integers(0, 3)},
            optional={
                "max": st.integers(0, 9),
                "operator": st.sampled_from(["+", "*", "^", "-"]),
                "operand": st.integers(0, 4),
            },
        ),
        st.sampled_from(["2", None, True, 2.5, 10**30]),
    )
    return st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                [*"aa", "rack", "node", "socket", "core", "gpu", "memory", "slot", "xor_slot", "cluster", 3]
            )
        },
        optional={
            "count": count,
            "with": st.lists(children, max_size=3),
            "exclusive": st.sampled_from([True, False, "yes"]),
            "label": st.sampled_from(["t", 4]),
        },
    )


resources = st.recursive(
    st.sampled_from([{"type": "core", "count": 1}, {"type": "node", "count": 2}, 7]), resource, max_leaves=6
)
constraints = st.sampled_from(
    [
        {},
        {"properties": ["fast"]},
        {"properties": ["^fast"]},
        {"hostlist": ["node[1-2]"]},
        {"ranks": ["0-1"]},
        {"and": [{"not": [{"properties": ["fast"]}]}, {"hostlist": ["node1"]}]},
        {"hostlist": ["node[1-"]},
        {"no": []},
        [],
    ]
)
jobspecs = st.fixed_dictionaries(
    {"version": st.just(1), "resources": st.lists(resources, max_size=2)},
    optional={
        "attributes": st.fixed_dictionaries(
            {
                "system": st.fixed_dictionaries(
                    {"duration": st.sampled_from([0, 5, 60, -1, "x", 1e300])}, optional={"constraints": constraints}
                )
            }
        )
    },
)
good = st.sampled_from(
    [
        {"resources": [{"type": "slot", "count": n, "with": [{"type": kind, "count": m}], "label": "t"}]}
        for n in (1, 3)
        for kind, m in (("core", 1), ("core", 2), ("node", 1), ("socket", 1), ("memory", 3), ("rack", 1))
    ]
)
texts = st.one_of(
    good.map(json.dumps),
    jobspecs.map(json.dumps),
    st.text(max_size=20),
    st.sampled_from(["[1, 2", "&a [*a]", "!!python/object:os.system {}", "{}", "[]", "null", "resources: 4", "\0"]),
)

words = st.one_of(
    st.sampled_from(
        ["f0", "f1", "f2", "none", "out", "/cluster0", "/cluster0/rack0/node0", "/cluster0/rack0/node0/socket1/core3"]
    ),
    st.sampled_from(
        [
            "0",
            "1",
            "2",
            "3",
            "-1",
            "9999999999999999999999",
            "1.5",
            "x",
            "jgf",
            "rv1exec",
            "up",
            "down",
            "a=b",
            "=",
            "a=",
        ]
    ),
    st.sampled_from(
        ["status=down", "sched-now=free", "and", "or", "not", "(", ")", "jobid-alloc=1", "property=fast", "names=node1"]
    ),
    st.text(max_size=4),
)
KNOWN = {
    "match": [
        "allocate",
        "allocate_orelse_reserve",
        "satisfiability",
        "without_allocating",
        "allocate_with_satisfiability",
        "x",
    ],
    "multi-match": ["allocate", "aor", "sat", "x"],
    "update": ["allocate", "reserve"],
    "find": ["status=up", "sched-now=allocated"],
}
lines = st.one_of(
    st.tuples(st.just("match"), st.sampled_from(KNOWN["match"]), st.sampled_from(["f0", "f1", "f2"])),
    st.tuples(
        st.just("update"),
        st.sampled_from(KNOWN["update"]),
        st.sampled_from(["jgf", "rv1exec", "x"]),
        st.sampled_from(["out", "f0", "f1"]),
        st.integers(-1, 9).map(str),
        st.sampled_from(["0", "5", "-3"]),
        st.sampled_from(["10", "0", "-1"]),
    ),
    st.tuples(st.sampled_from(["cancel", "info", "partial-cancel", "c", "i"]), st.integers(-1, 6).map(str)),
    st.tuples(st.sampled_from(["attach", "cat"]), st.sampled_from(["out", "f0", "f1", "f2"])),
    st.tuples(
        st.sampled_from(["remove", "r"]),
        st.sampled_from(["0", "0-1", "9", "x", "/cluster0", "/cluster0/rack0", "/cluster0/rack0/node1/socket0"]),
        st.sampled_from(["true", "false", "x"]),
    ),
    st.tuples(
        st.just("partial-cancel"),
        st.integers(1, 4).map(str),
        st.sampled_from(["jgf", "rv1exec"]),
        st.sampled_from(["out", "f0"]),
    ),
    st.tuples(
        st.sampled_from(
            [
                "match",
                "m",
                "multi-match",
                "update",
                "u",
                "cancel",
                "partial-cancel",
                "pc",
                "find",
                "f",
                "info",
                "stat",
                "s",
                "set-property",
                "get-property",
                "set-status",
                "get-status",
                "help",
                "list",
                "attach",
                "remove",
                "bogus",
                "#",
            ]
        ),
        words,
        words,
        words,
    ).map(lambda parts: parts[: 1 + len(parts[3]) % 4]),
)


@pytest.mark.parametrize("form", ["simple", "rv1", "rv1_shorthand", "jgf"])
@settings(max_examples=80, deadline=None)
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    files=st.tuples(good.map(json.dumps), texts, texts),
    typed=st.lists(lines, min_size=1, max_size=12),
)
def test_no_command_ends_it_and_nothing_is_lost(
    form: str, policy: str, files: tuple[str, ...], typed: list[tuple[str, ...]]
) -> None:
    said: list[str] = []
    table = {f"f{i}": text for i, text in enumerate(files)}

    def open_file(name: str) -> str:
        if name == "out":
            return next((text for text in reversed(said) if text.startswith("{")), "{}").split("\n")[0]
        if name not in table:
            raise FileNotFoundError(2, "No such file or directory", name)
        return table[name]

    scheduler = Scheduler(machine(), policy, ("core", "gpu", "node"))
    engine = Commands(scheduler, WRITERS[form], said.append, said.append, open_file)
    for line in typed:
        assert engine.run(" ".join(line) + "\n") or line[0] in ("q", "quit")
    for jobid in list(scheduler.jobs):
        scheduler.cancel(jobid)
    assert not scheduler.plans
    assert not any(planner.times for planner in scheduler.shared.values())
    assert not any(planner.times for counts in scheduler.busy.values() for planner in counts.values())
