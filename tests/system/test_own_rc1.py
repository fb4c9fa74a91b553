"""Instances whose own scripts load and remove the modules, as those of test suites do."""

from __future__ import annotations

from pathlib import Path

import pytest
from instance import start

# In the order, and under the shell, in which such scripts come. What is loaded on "all" serves on rank 0 alone here.
_ON = """#!/bin/bash -e
RANK=$(flux getattr rank)
SIZE=$(flux getattr size)
on() { where=$1; shift; if test $where = all || test $where = $RANK; then "$@"; fi; }
names() { flux module list | awk 'NR > 1 {print $1}' | sort >$FOLDER/$1.$RANK; }
"""
_RC1 = """
names before
on all flux module load content
on 0 flux module load content-sqlite
on all flux module load kvs
on all flux module load kvs-watch
on 0 flux module load job-manager
on all flux module load job-ingest
on all flux module load job-info
on 0 flux module load job-list
on all flux module load barrier
on 0 flux module load heartbeat
on 0 flux kvs put resource.R="$(flux R encode -r0-$((SIZE - 1)) -c0-1)"
on all flux module load resource noverify
on 0 flux module load job-exec
on 0 flux module load sched-simple mode=limited=8
on 0 flux module debug --setbit 0x2 sched-simple >/dev/null
on all flux module load cron
names loaded
on 0 flux admin cleanup-push <<EOT
    flux queue stop --quiet --all --nocheckpoint
    flux cancel --all --quiet --states RUN
    flux queue idle --quiet
EOT
"""
_RC3 = """
for name in job-exec heartbeat sched-simple; do on 0 flux module remove -f $name; done
on all flux module remove -f resource
for name in job-list job-manager; do on 0 flux module remove -f $name; done
for name in job-info barrier kvs-watch job-ingest kvs cron; do on all flux module remove -f $name; done
flux content flush
on 0 flux module remove -f content-sqlite
on all flux module remove -f content
names after
"""
_NO_RC = ("-Sbroker.rc1_path=", "-Sbroker.rc3_path=")


def scripts(folder: Path, rc1: str = _RC1, rc3: str = _RC3) -> dict[str, str]:
    """Both scripts in `folder`, and the environment that names them."""
    for name, text in (("rc1", rc1), ("rc3", rc3)):
        (folder / name).write_text(_ON + text)
        (folder / name).chmod(0o755)
    return {"FLUX_RC1_PATH": str(folder / "rc1"), "FLUX_RC3_PATH": str(folder / "rc3"), "FOLDER": str(folder)}


@pytest.mark.parametrize("size", [1, 4])
def test_an_instance_that_scripts_put_together_runs_jobs_and_ends_clean(tmp_path: Path, size: int) -> None:
    program = f"""
    flux run hostname >/dev/null && flux run -n{2 * size} -l true; flux run -N{size} hostname >{tmp_path}/out
    test $? = 0 && wc -l <{tmp_path}/out
    test $(wc -l <{tmp_path}/out) = {size} || for log in eventlog guest.exec.eventlog guest.output; do
        flux job info $(flux job last) $log >&2
    done
    flux resource list -s free -no "{{nnodes}} {{ncores}}"
    flux exec flux kvs get resource.R | sort -u | wc -l
    flux module stats sched-simple | grep -c running
    """
    done = start(f"--test-size={size}", program, **scripts(tmp_path))
    lines = [f"{size}", f"{size} {2 * size}", "1", "1", ""]
    assert (done.out.split("\n"), done.rc, done.left) == (lines, 0, []), done.err
    for rank in range(size):
        before, loaded, after = (
            (tmp_path / f"{name}.{rank}").read_text().split() for name in ("before", "loaded", "after")
        )
        assert before == after and "rexec" in before and "content" not in before
        everywhere = {"content", "kvs", "kvs-watch", "job-ingest", "job-info", "barrier", "resource", "cron"}
        leading = {"content-sqlite", "job-manager", "job-list", "heartbeat", "job-exec", "sched-simple"}
        assert set(loaded) - set(before) == everywhere | (set() if rank else leading)


def test_scripts_that_take_content_for_a_part_of_the_broker_find_it(tmp_path: Path) -> None:
    rc1 = "flux module load kvs\non 0 flux content store </dev/null\n"
    done = start(
        "--test-size=2",
        "flux kvs put a=1; flux exec -r1 flux kvs get a; flux module list | grep -c content",
        **scripts(tmp_path, rc1, "flux module remove kvs\n"),
    )
    assert done.out.split("\n")[1:] == ["1", "0", ""]


def test_without_scripts_a_program_loads_what_it_needs_and_removes_it() -> None:
    program = """
    flux run true 2>&1 | grep -c job-ingest.submit
    flux module load content && flux exec flux module load kvs
    flux exec -r1 flux kvs put a=1 && flux exec flux kvs get a
    flux exec flux module remove kvs && flux module remove content
    flux module load content && flux module remove content; flux module remove content
    env | grep -c FLUX_RC
    exit 0
    """
    done = start("--test-size=2", program, FLUX_RC1_PATH="", FLUX_RC3_PATH="")
    assert (done.out, done.rc, done.left) == ("1\n1\n1\n0\n", 0, [])
    assert done.err == "flux-module: remove content: No such file or directory\n"


def test_what_a_program_forgets_to_remove_is_named(tmp_path: Path) -> None:
    done = start(*_NO_RC, "flux module load content")
    assert done.rc == 1
    assert "broker module 'content' was not properly shut down" in done.err


def test_instances_inside_one_with_scripts_have_their_modules(tmp_path: Path) -> None:
    program = "flux alloc -N1 flux run hostname | wc -l; flux run flux start flux run echo inner"
    done = start("--test-size=2", program, **scripts(tmp_path))
    assert (done.out, done.rc) == ("1\ninner\n", 0)


def test_a_script_that_fails_ends_the_brokers_that_wait_for_it(tmp_path: Path) -> None:
    done = start("--test-size=4", "-Stbon.topo=kary:1", "-Sbroker.rc1_path=sleep 0.5; exit 3", "true", timeout=240)
    assert (done.rc, done.left) == (3, [])


def test_arguments_that_a_module_does_not_know_are_refused() -> None:
    program = """
    flux module load content; flux module load kvs
    for name in job-manager job-ingest job-info job-list barrier content-sqlite sched-simple resource cron; do
        flux module load $name bad=1 || echo $name
    done
    flux module remove kvs; flux module remove content
    """
    done = start(*_NO_RC, program)
    assert done.out.split() == [
        *("job-manager", "job-ingest", "job-info", "job-list"),
        *("barrier", "content-sqlite", "sched-simple", "resource", "cron"),
    ]
    assert done.err.count("unknown argument 'bad=1'") == 9


def test_clients_of_any_broker_meet_in_a_barrier() -> None:
    program = """
    enter() { flux exec flux python -c "import flux; h = flux.Flux(); h.barrier('b', $1); h.barrier('c', $1)"; }
    enter 4 2>&1 | grep -c 'barrier.enter'
    flux exec flux module load barrier && enter 4 && echo met
    flux module stats barrier
    flux exec flux module remove barrier
    """
    done = start("--test-size=4", *_NO_RC, program)
    assert "met\n" in done.out and '"barriers": 0' in done.out.replace(":0", ": 0")
    assert done.rc == 0
