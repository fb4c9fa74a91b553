"""Tasks that turn on the process that started them: their own job pays, the others and the instance go on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from instance import start

SIZES = pytest.mark.parametrize("size", [(), ("--test-size=3", "-Stbon.topo=kary:1")], ids=["alone", "of three"])


@SIZES
def test_a_task_that_kills_the_agent_ends_the_jobs_of_its_node_and_another_agent_goes_on(size: tuple[str, ...]):
    last = 2 if size else 0
    script = f"""
    flux submit --requires=rank:{last} sleep 600 >/dev/null
    {"flux submit --requires=rank:0 sh -c 'sleep 2.5; exit 4' >/dev/null" if size else ""}
    flux exec -r{last} sh -c 'sleep 600; echo no' & exec=$!
    flux job wait-event $(flux job last) start >/dev/null
    sleep .3
    flux run --requires=rank:{last} sh -c 'kill -9 $PPID; sleep 600'; echo $?
    wait $exec; echo $?
    flux run -N{last + 1} -n{last + 1} true; echo $?
    flux exec true; echo $?
    flux resource status -no '{{state}} {{ranks}}' | grep -e offline -e drained
    flux queue drain
    flux jobs -ano '{{returncode}} {{status}}' | sort
    flux dmesg | grep -o 'err.*agent.*'
    """
    done = start(*size, "sh", "-c", script)
    assert done.left == [], done.err
    told, why = "137\n137\n0\n0\n", f"err[{last}]: the exec agent was killed: its jobs are lost, starting another\n"
    ends = ["0 COMPLETED", "-9 FAILED", "-9 FAILED", *(["4 FAILED"] if size else [])]
    assert done.out == told + "".join(f"{end}\n" for end in sorted(ends)) + why, done.err


@SIZES
@pytest.mark.parametrize("command", ["run", "submit --quiet --watch"])
def test_a_job_that_has_killed_its_agent_is_run_again_if_it_asks_for_that(
    command: str, size: tuple[str, ...], tmp_path: Path
):
    script = f"""
    cd {tmp_path}
    again='test -e again && ls -A $FLUX_JOB_TMPDIR && exec echo again'
    once='echo first; touch again $FLUX_JOB_TMPDIR/left; kill -9 $PPID; sleep 600'
    flux {command} --requires=rank:{2 if size else 0} --setattr=system.requeue=true sh -c "$again; $once" ; echo $?
    """
    done = start(*size, "sh", "-c", script)
    assert done.left == [], done.err
    # What the agent had not handed on when it was killed is lost.
    assert done.out.replace("first\n", "", 1) == "again\n0\n", done.err


def test_a_task_that_kills_another_nodes_agent_takes_its_own_node_from_the_job_and_no_more():
    script = """
    flux run -N2 -n2 -o exit-timeout=1s sh -c 'test $FLUX_TASK_RANK = 1 && kill -9 $PPID; sleep 600'; echo $?
    flux run -N2 -n2 sh -c 'test $FLUX_TASK_RANK = 1 && kill -9 $PPID; sleep 1; echo went on'; echo $?
    flux job eventlog $(flux job last) | grep -c exception
    """
    done = start("--test-size=2", "sh", "-c", script)
    assert done.left == [], done.err
    assert done.out == "1\nwent on\n137\n0\n", done.err
    assert "WARN: exception: shell rank 1 (on" in done.err and "): Killed and exit-timeout=1s has expired" in done.err


@SIZES
@pytest.mark.parametrize("signal", ["STOP", "USR1", "TERM"])
def test_what_else_a_task_sends_to_its_parent_stops_nothing(size: tuple[str, ...], signal: str):
    script = f"""
    flux run sh -c 'kill -{signal} $PPID; sleep .2; echo after'
    flux submit --quiet --cc=1-30 sh -c 'kill -{signal} $PPID'
    flux queue drain
    flux jobs --stats-only
    """
    done = start(*size, "sh", "-c", script)
    assert done.left == [], done.err
    assert done.out == "after\n0 running, 31 completed, 0 failed, 0 pending, 0 inactive purged\n", done.err


@SIZES
@pytest.mark.parametrize(("signal", "number"), [("QUIT", 3), ("USR2", 12), ("RTMIN", 34)])
def test_a_task_whose_signal_would_end_its_parent_ends_its_own_job_alone(
    size: tuple[str, ...], signal: str, number: int
):
    last = 2 if size else 0
    script = f"""
    flux submit --requires=rank:{last} sleep 600 >/dev/null; other=$(flux job last)
    flux job wait-event $other start >/dev/null
    # The sender is a grandchild that has left the task's session.
    flux run --requires=rank:{last} sh -c 'parent=$PPID; setsid sh -c "kill -{signal} $parent; sleep 600"'; echo $?
    flux job status $(flux job last); echo $?
    flux submit --quiet --wait --cc=1-30 --requires=rank:{last} sh -c 'kill -{signal} $PPID; sleep 600' 2>/dev/null
    flux cancel $other
    flux queue drain
    flux jobs -ano '{{returncode}}' -c 0 | sort | uniq -c | xargs
    flux dmesg | grep 'agent'
    true
    """
    done = start(*size, "sh", "-c", script)
    assert done.left == [], done.err
    status = 128 + number
    assert done.out == f"{status}\n{status}\n31 -{number} 1 143\n", done.err


def test_a_task_whose_signal_would_end_the_shell_of_another_node_takes_that_node_from_its_job():
    script = """
    flux run -N2 -n2 -o exit-timeout=1s sh -c 'test $FLUX_TASK_RANK = 1 && kill -QUIT $PPID; sleep 600'; echo $?
    flux run -N2 -n2 sh -c 'test $FLUX_TASK_RANK = 1 && kill -QUIT $PPID; sleep 1; echo went on'; echo $?
    flux job eventlog $(flux job last) | grep -c exception
    """
    done = start("--test-size=2", "sh", "-c", script)
    assert done.left == [], done.err
    assert done.out == "1\nwent on\n131\n0\n", done.err
    assert "WARN: exception: shell rank 1 (on" in done.err and "): Quit and exit-timeout=1s has expired" in done.err


def test_an_instance_whose_agents_are_killed_again_and_again_ends():
    script = "for i in 1 2 3 4 5 6 7; do flux run sh -c 'kill -9 $PPID; sleep 600' 2>/dev/null; sleep .3; done"
    done = start("sh", "-c", script)
    assert done.left == [], done.err
    assert done.rc != 0
    assert "6 exec agents ended within 60 seconds; this broker shuts down" in done.err
    assert done.err.count("starting another") == 5


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs room beside the first")
def test_the_instance_within_an_agent_that_is_killed_ends_with_it():
    script = """
    flux submit flux start sleep 600 >/dev/null
    id=$(flux job last); flux job wait-event $id memo >/dev/null
    flux run sh -c 'kill -9 $PPID; sleep 600'
    flux job status $id; echo $?
    """
    done = start("sh", "-c", script)
    # What is killed without a word leaves its folder, as anything does.
    assert [what for what in done.left if not what.startswith("/")] == [], done.err
    assert done.out == "137\n", done.err
