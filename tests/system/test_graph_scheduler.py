"""Real instances with the graph scheduler: jobs, backfill, drains, restarts, nesting, configuration."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest
from instance import Done, start

GRAPH = "-Ssched.module=graph"


def shell(script: str, *options: str) -> Done:
    """Run a script in an instance that schedules on the graph; every line must succeed."""
    done = start(GRAPH, *options, "bash", "-ec", script)
    assert done.rc == 0, (done.out, done.err)
    assert not done.left
    return done


def test_jobs_run_wait_are_canceled_and_leave_everything_free() -> None:
    done = shell(
        """
        flux run -N4 -n4 -o cpu-affinity=off echo ran
        flux submit --quiet --cc=1-20 true
        flux queue drain
        flux jobs -ano '{result}' | sort | uniq -c
        first=$(flux submit -N3 --exclusive sleep 600)
        second=$(flux submit -N2 --exclusive true)
        until flux jobs -no '{contextual_info}' $second | grep short; do sleep .05; done
        flux cancel $first
        flux job wait-event -t 10 $second clean >/dev/null
        flux resource list -no '{state} {nnodes}'
        """,
        "--test-size=4",
    )
    out = done.out.splitlines()
    assert out[:4] == ["ran"] * 4
    assert out[4].split() == ["21", "COMPLETED"]
    assert out[5] == "insufficient resources: idle node x1 short (2 wanted, 1 free)"
    assert out[6:] == ["free 4", "allocated 0", "down 0"]


def test_a_job_that_can_never_run_ends_with_the_reason() -> None:
    done = start(GRAPH, "--test-size=2", "flux", "run", "-N3", "true")
    assert done.rc == 1
    assert "unsatisfiable request: need 3 exclusive node(s), only 2 eligible" in done.err


def test_short_jobs_pass_a_wide_one_and_do_not_delay_it() -> None:
    done = shell(
        """
        flux submit -N1 -t 60s --exclusive sleep 600 >/dev/null
        wide=$(flux submit -N2 -t 60s --exclusive true)
        long=$(flux submit -n1 -t 1h true)
        flux run -n1 -t 10s echo passed
        flux jobs -no '{state}' $wide $long
        until flux jobs -no '{annotations.sched.t_estimate}' $wide | grep -q '^1'; do sleep .05; done
        flux cancel --all --quiet
        """,
        "--test-size=2",
        "--conf=sched-fluxion-qmanager.queue-policy=easy",
    )
    assert done.out.split() == ["passed", "SCHED", "SCHED"]


def test_drained_nodes_get_no_jobs_until_undrained() -> None:
    done = shell(
        """
        flux resource drain 0-2
        flux run flux getattr rank
        id=$(flux submit -N4 -n4 --exclusive true)
        sleep .2
        flux jobs -no '{state}' $id
        flux resource undrain 0-2
        flux job wait-event -t 10 $id clean >/dev/null
        flux jobs -ano '{result}' $id
        """,
        "--test-size=4",
    )
    assert done.out.split() == ["3", "SCHED", "COMPLETED"]


def test_another_scheduler_takes_over_running_jobs_and_the_queue() -> None:
    done = shell(
        """
        running=$(flux submit -N1 --exclusive sleep 600)
        waiting=$(flux submit -N2 --exclusive true)
        flux job wait-event $running start >/dev/null
        for from in graph simple graph; do
            to=$([ $from = graph ] && echo simple || echo graph)
            flux module remove sched-$from
            flux module load sched-$to
            flux resource list -no '{nnodes}' -s allocated
        done
        flux jobs -no '{state}' $running $waiting
        flux cancel $running
        flux job wait-event -t 10 $waiting clean >/dev/null
        """,
        "--test-size=2",
    )
    assert done.out.split() == ["1", "1", "1", "RUN", "SCHED"]


def test_queues_keep_to_their_nodes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "queues.toml").write_text(
            """
            [[resource.config]]
            hosts = "n[0-3]"
            cores = "0-1"
            [[resource.config]]
            hosts = "n[0-2]"
            properties = ["batch"]
            [[resource.config]]
            hosts = "n3"
            properties = ["debug"]
            [queues.batch]
            requires = ["batch"]
            [queues.debug]
            requires = ["debug"]
            """
        )
        done = shell(
            """
            flux queue start --all --quiet
            flux submit --quiet -q batch -N3 --exclusive sleep 600
            flux run -q debug flux getattr rank
            ! flux run -q debug -N2 true
            flux cancel --all --quiet
            flux queue drain
            """,
            "--test-size=4",
            "--test-hosts=n[0-3]",
            f"--config-path={folder}",
        )
    assert done.out.split() == ["3"]
    assert "only 1 eligible" in done.err


def test_configuration_is_reloaded_or_refused_by_its_key() -> None:
    done = shell(
        """
        echo '[sched-fluxion-qmanager]
        queue-policy = "easy"' | flux config load
        flux module stats sched-fluxion-qmanager | grep policy || true
        flux run true
        flux module stats sched-fluxion-qmanager | grep policy
        ! echo '[sched-fluxion-resource]
        match-policy = "best"' | flux config load
        flux ion-resource params
        """
    )
    assert '"policy": "easy"' in done.out
    assert "match-policy: must be one of first" in done.err
    assert '"match-policy": "lonode"' in done.out


# Prints the numbers that a graph's nodes have in it, from what `flux ion-resource find --format=jgf` says.
_NODES = """
import json, sys
graph = json.loads(sys.stdin.read().splitlines()[-1])["graph"]
print(*sorted(int(one["id"]) for one in graph["nodes"] if one["metadata"]["type"] == "node"))
"""


@pytest.mark.parametrize("form", ["rv1_nosched", "rv1", "rv1_shorthand"])
def test_an_instance_in_a_job_schedules_on_its_part(form: str, tmp_path: Path) -> None:
    Path(tmp_path, "nodes.py").write_text(_NODES)
    done = shell(
        f"""
        flux submit -N1 --exclusive sleep 600 >/dev/null
        flux alloc -N2 --exclusive --broker-opts=-Ssched.module=graph bash -c '
            flux ion-resource find --format=jgf status=up | {sys.executable} {tmp_path}/nodes.py
            flux resource list -s free -no "{{nnodes}} {{ncores}}"
            flux run -N2 echo inner'
        flux cancel --all --quiet
        """,
        "--test-size=3",
        f"--conf=sched-fluxion-resource.match-format={form}",
    )
    cores = len(os.sched_getaffinity(0))
    each = cores + 1
    # With the graph in R its vertices keep their numbers; else, or if it leaves cores out, they are numbered anew.
    nodes = [1 + each, 1 + 2 * each] if form == "rv1" else [1, 1 + each]
    assert done.out.split() == [*map(str, nodes), "2", str(2 * cores), "inner", "inner"]
