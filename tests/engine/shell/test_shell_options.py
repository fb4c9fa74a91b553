"""Shell options that are wrong: what ends the job, what is told, and what a job makes of the right ones."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
from agent_world import World
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.shell.options import OptionError, check, exit_timeout, pty_added, pty_ranks
from headrace.formats.spec.idset import Idset


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"exit-timeout": "aaa"}, "exit-timeout=aaa is not a valid Flux standard duration"),
        ({"exit-timeout": False}, "exit-timeout=False is not"),
        ({"pty": {"foo": 1}}, "invalid pty option: foo"),
        ({"pty": {"ranks": "3-1"}}, "invalid pty option: ranks=3-1"),
        ({"rlimit": {"foo": 1}}, "invalid rlimit option: foo=1"),
        ({"rlimit": 1}, "invalid rlimit option"),
        ({"rlimit": {"core": -2}}, "invalid rlimit option: core=-2"),
        ({"rlimit": {"core": 1 << 63}}, "invalid rlimit option: core=9223372036854775808"),
        ({"exit-timeout": -1}, "exit-timeout=-1 is not"),
        ({"exit-timeout": float("nan")}, "exit-timeout=nan is not"),
        ({"stage-in": 1}, "shell option stage-in is not supported by Headrace"),
        ({"input": {"stdin": {"type": "foobar"}}}, "invalid input type specified: foobar"),
        ({"input": {"stdin": {"type": "file"}}}, "path for stdin file input not specified"),
        ({"output": {"stdout": {"type": "foobar"}}}, "invalid output type specified: foobar"),
        ({"output": {"stderr": {"type": "file"}}}, "path for stderr file output not specified"),
        ({"oom": {"adjust": "foo"}}, "invalid oom.adjust=foo"),
        ({"oom": {"adjust": 1001}}, "invalid oom.adjust=1001"),
        ({"rexec-shutdown-timeout": "soon"}, "rexec-shutdown-timeout=soon is not a valid Flux standard duration"),
        ({"oom": 5}, "invalid oom=5: write oom.KEY, with one of adjust"),
        ({"oom": {"foo": 1}}, "invalid oom.adjust=None"),
        ({"verbose": "wrong"}, "invalid verbose=wrong: must be a whole number"),
        ({"nosetpgrp": "x"}, "invalid nosetpgrp=x"),
        ({"exit-on-error": "x"}, "invalid exit-on-error=x: must be a whole number"),
        ({"mpi": {"x": 1}}, "invalid mpi={'x': 1}: must be a list of intel, mvapich"),
        ({"pty": "x"}, "invalid pty=x: must be a whole number, or pty.KEY with one of capture, interactive, ranks"),
        ({"pty": {"capture": "x"}}, "invalid pty.capture=x"),
        ({"pmi": 1}, "invalid pmi=1: must be a list of simple, pmi1"),
        ({"pmi-simple": 1}, "invalid pmi-simple=1: write pmi-simple.KEY"),
        ({"output": 1}, "invalid output=1: write output.KEY, with one of batch-timeout"),
        ({"output": {"stdout": "file"}}, "invalid output.stdout=file: write output.stdout.KEY"),
        ({"input": {"stdin": "file"}}, "invalid input.stdin=file: write input.stdin.KEY, with one of path, type"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        check(options)
    assert text in str(caught.value)


def test_what_does_no_harm_is_told() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert check({"output": {"stderr": {"buffer": {"type": "odd"}}}}) == ["invalid buffer type specified: odd"]
    assert check({"output": {"stderr": {"buffer": {"type": "line"}}}, "rlimit": {"nofile": soft}}) == []
    assert check({"output": {"mode": "foo"}}) == ["ignoring invalid output.mode=foo"]
    assert check({"input": {"limit": "1M"}}) == ["shell option input.limit has no effect in Headrace"]
    assert check({"gpu-affinity": "wrong"}) == [
        "gpu-affinity: Failed to get gpu-affinity shell option: wrong: must be on, off, per-task or map:LIST"
    ]
    assert check({"hwloc": {"xmlfile": 1}}) == ["shell option hwloc has no effect in Headrace"]
    assert [check({"pmi": method}) for method in ("off", "pmix,simple", "pmi2", "pmix")] == [[]] * 4
    assert check({"output": {"stdout": {"type": "term"}}}) == []
    known = "simple, pmi1, pmi2, pmix, off, none"
    assert check({"pmi": "cray"}) == [f"pmi=cray is not offered, tasks get none: known are {known}"]
    assert [check({"mpi": name}) for name in ("none", "openmpi@5", "intel,spectrum")] == [[]] * 3
    told = "mpi=nosuch has no effect: known are intel, mvapich, none, openmpi, spectrum"
    assert check({"mpi": "openmpi,nosuch"}) == [told]
    assert check({"rlimit": {"nofile": -1}}) == [f"nofile exceeds current max, raising value to hard limit {hard}"]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"foo": 1}, ["foo"]),
        ({"foo": {"bar": {}}, "verbose": 1}, ["foo"]),
        ({"cpu-afinity": "off"}, ["cpu-afinity"]),
        (
            {"output": {"foo": 1, "limit": "1M", "stdout": {"bar": 1, "buffer": {"type": "none", "size": 1}}}},
            ["output.foo", "output.stdout.bar", "output.stdout.buffer.size"],
        ),
        ({"input": {"stdin": {"mode": 1}}}, ["input.stdin.mode"]),
        ({"pmi-simple": {"exchange": {"k": 3}, "map": 1}}, ["pmi-simple.map"]),
        ({"mpi": "none", "per-resource": {"type": "node"}, "exit-timeout": "none", "pty": {"interactive": 1}}, []),
        ({"rlimit": {"core": 0}, "env-expand": {"X": "{{id}}"}, "signal": {"signum": 10}, "taskmap": "cyclic"}, []),
        ({"output": {"batch-timeout": 0.05, "client": {"lwm": 1, "hwm": 2}}, "input": {"batch-timeout": 0.01}}, []),
        ({"gone": None}, []),
    ],
)
def test_an_option_that_nothing_uses_is_told(options: dict[str, Any], names: list[str]) -> None:
    assert check(options) == [f"shell option {name} is unknown to Headrace and has no effect" for name in names]


def test_one_node_tells_of_the_options_of_all(world: World) -> None:
    job = world.run(["true"], 2, nodes=[0, 1], options={"foo": 1})
    assert job.status == 0
    assert job.logs() == ["shell option foo is unknown to Headrace and has no effect"]


_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "0", "file", "none", "1,2"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["stdin", "stdout", "type", "path", "buffer", "mode", "ranks", "interactive", "core", "nofile"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("exit-timeout", "pty", "input", "output", "rlimit", "oom", "pmi", "env-expand"),
                *("cpu-affinity", "gpu-affinity", "pmi-simple", "verbose", "foo"),
            ]
        ),
        _values,
    )
)
def test_whatever_json_has_is_taken_told_or_named(options: dict[str, Any]) -> None:
    try:
        told = check(options)
    except OptionError:
        return
    assert all(isinstance(text, str) for text in told)


@pytest.mark.parametrize(
    ("option", "seconds"), [("none", None), (100, 100.0), ("42.34", 42.34), ("1m", 60.0), ("infinity", None)]
)
def test_exit_timeouts(option: Any, seconds: float | None) -> None:
    assert exit_timeout({"exit-timeout": option}) == seconds


@pytest.mark.parametrize(
    ("option", "ranks", "added"),
    [
        (None, Idset(), False),
        (1, None, False),
        ({"capture": 1}, None, False),
        ({"interactive": 1}, Idset([0]), False),
        ({"interactive": 1, "ranks": "1"}, Idset([0, 1]), True),
        ({"interactive": 1, "ranks": "all"}, None, False),
        ({"ranks": 1}, Idset([1]), False),
    ],
)
def test_which_tasks_get_a_terminal(option: Any, ranks: Idset | None, added: bool) -> None:
    assert pty_ranks({"pty": option}) == ranks
    assert pty_added({"pty": option}) is added


def test_wrong_options_end_the_job_with_their_text(world: World) -> None:
    for options, text in [
        ({"per-resource": {"type": "foo"}}, "invalid per-resource option {'type': 'foo'}"),
        ({"per-resource": {"type": "core", "count": 0}}, "invalid per-resource.count=0"),
        ({"taskmap": {"foo": "bar"}}, "invalid taskmap option"),
        ({"pty": {"foo": 1}}, "invalid pty option: foo"),
        ({"pty": {"ranks": "0-1"}}, "invalid pty option: ranks=0-1: the tasks of this job are only task 0"),
        ({"pty": {"interactive": 1, "ranks": 7}}, "invalid pty option: ranks=7: the tasks of this job are only task 0"),
        ({"taskmap": {"scheme": "block", "value": "5"}}, "taskmap=block:5: block takes no value"),
        ({"cpu-affinity": "map:0x0"}, "invalid cpuset '0x0'"),
        ({"output": {"limit": "foo"}}, "invalid output.limit=foo"),
        ({"output": {"limit": 0}}, "invalid output.limit=0"),
        ({"output": {"limit": "4G"}}, "invalid output.limit=4G"),
    ]:
        job = world.run(["true"], options=options)
        assert job.status == 1 << 8
        assert text in job.exceptions[0]["note"]


def test_terminals_of_tasks_that_a_job_has_not_end_it(world: World) -> None:
    job = world.run(["true"], 4, nodes=[0, 1], options={"pty": {"ranks": "2-4"}})
    assert (job.status, job.exceptions[0]["note"]) == (
        1 << 8,
        "invalid pty option: ranks=2-4: the tasks of this job are 0-3",
    )
    assert world.run(["tty"], 4, nodes=[0, 1], options={"pty": {"ranks": "1,3"}}).status == 1 << 8
    assert world.run(["sh", "-c", "tty || true"], 4, options={"pty": {"ranks": "1,3"}}).text().count("/dev/pts/") == 2


def test_tasks_are_as_ready_to_be_killed_for_memory_as_they_were_asked_to_be(world: World) -> None:
    score = ["cat", "/proc/self/oom_score_adj"]
    own = world.run(score).text()
    assert world.run(score, options={"oom": {"adjust": 321}}, ntasks=2).text() == "321\n321\n"
    assert world.run(score).text() == own


def test_pmi_tells_no_map_where_none_is_wanted(world: World) -> None:
    ask = ["sh", "-c", 'echo "cmd=get kvsname=x key=PMI_process_mapping" >&3; head -n1 <&3']
    assert "value=(vector,(0,1,1))" in world.run(ask).text()
    assert "key_not_found" in world.run(ask, options={"pmi-simple": {"nomap": 1}}).text()


def test_a_missing_tmpdir_is_made(world: World, tmp_path: Path) -> None:
    wanted = tmp_path / "made"
    assert world.run(["sh", "-c", "echo $TMPDIR"], env={"TMPDIR": str(wanted)}).text() == f"{wanted}\n"
    assert wanted.is_dir()
    nowhere = {"TMPDIR": f"{tmp_path}/none/none"}
    assert world.run(["sh", "-c", "echo $TMPDIR"], env=nowhere).text() == "/tmp\n"
