"""The default scheduler goes by its own name and by that of Flux's; both schedulers take the same options."""

from __future__ import annotations

import pytest
from instance import start


def test_flux_s_name_removes_the_default_scheduler_and_loads_the_simple_one() -> None:
    done = start(
        """
        schedulers() { flux module list | awk '/sched-/ {print $1}'; }
        logged() { flux dmesg | sed -n "s/.*\\($1\\)/\\1/p" | tail -n1; }
        schedulers
        flux module stats -p running sched-simple
        flux module reload sched-simple log-level=debug queue-depth=4 && flux run true
        schedulers
        flux module stats -p running sched-simple
        logged 'sched-simple.info.*ready' | sed 's: rank.*::'
        logged 'job-manager.debug.*scheduler: ready'
        flux module remove sched-simple
        flux module load sched-graph queue-depth=3 && flux run true
        logged 'sched-graph.info.*ready' | sed 's: rank.*::'
        flux module remove sched-simple; schedulers; ! flux module remove sched-simple
        """
    )
    assert done.out.splitlines() == [
        "sched-graph",
        "0",
        "sched-simple",
        "0",
        "sched-simple.info[0]: ready: queue-depth=4 log-level=debug pool-class=Rv1Pool Rv1",
        "job-manager.debug[0]: scheduler: ready limited",
        "sched-graph.info[0]: ready: queue-depth=3 log-level=info pool-class=Rv1Pool match-policy=lonode Rv1",
    ]
    assert done.err == "flux-module: remove sched-simple: No such file or directory\n"


@pytest.mark.parametrize("scheduler", ["sched-simple", "sched-graph"])
def test_a_scheduler_that_is_given_a_wrong_option_is_not_loaded(scheduler: str) -> None:
    done = start(
        f"""
        flux module remove sched-simple
        flux module load {scheduler} queue-depth=bogus
        flux module load {scheduler} foo
        flux dmesg | grep -o 'load {scheduler}: .*' | cut -d: -f2-
        flux module load {scheduler} && flux run true
        """
    )
    first, second = done.err.splitlines()
    depth = "queue-depth='bogus' is invalid: expected a positive integer or 'unlimited'"
    known = "unknown argument 'foo': built-in options are queue-depth, log-level, pool-class"
    assert first == f"flux-module: load {scheduler}: {depth}"
    assert second.startswith(f"flux-module: load {scheduler}: {known}, ")
    one, two = done.out.splitlines()
    assert one == f" {depth}" and two.startswith(f" {known}")
    assert done.rc == 0
