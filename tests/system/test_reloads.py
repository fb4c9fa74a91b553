"""Modules are taken away and loaded again under a light load of jobs: nothing is lost, and nobody has to begin anew."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from instance import Done, start

from headrace.engine.modules import SERVICES

# What a user sees of an instance while MODULE is reloaded twice: lines of JSON about what must not change.
_LOAD = """
import json, os, subprocess, sys
how, told = sys.argv[1:], {}

def sh(line, **more):
    ran = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60, **more)
    return ran.stdout.strip() if ran.returncode == 0 else f"FAILED {ran.returncode} {ran.stdout}{ran.stderr}"

def reload():
    for options in how:
        assert not sh(f"flux module reload {options}"), options

sh("flux kvs put a.b=1 && flux kvs namespace create ns && flux kvs put -N ns k=2 && flux resource drain 1 why")
blob = sh("echo hi | flux content store")
early = sh("flux submit echo early")
sh(f"flux job wait-event {early} clean")
long = sh("flux submit sh -c 'echo one; while ! [ -e $GO ]; do sleep 0.05; done; echo two'")
cancelled = sh("flux submit sleep inf")
held = sh("flux submit --urgency=hold true")
sh(f"flux job wait-event {cancelled} start")
many = sh("flux submit --cc=1-12 true").split()
attached = subprocess.Popen(["flux", "job", "attach", long], stdout=subprocess.PIPE, text=True)
waiter = subprocess.Popen(["flux", "job", "wait-event", long, "clean"], stdout=subprocess.PIPE, text=True)
reload()
many += sh("flux submit --cc=1-8 true").split()
sh(f"flux job urgency {held} 16 && flux cancel {cancelled}")
reload()
open(os.environ["GO"], "w").close()
for id in [long, held, cancelled, *many]:
    assert sh(f"flux job wait-event -q {id} clean && echo ok") == "ok", (id, sh(f"flux job eventlog {id}; flux dmesg"))
told["attached"] = attached.communicate(timeout=60)[0].split()
told["waited"] = waiter.communicate(timeout=60)[0].split()[-1:]
told["early"] = sh(f"flux job attach {early}")
told["ids"] = len(set(many))
told["kvs"] = [sh("flux kvs get a.b"), sh("flux kvs get -N ns k"), sh(f"flux content load {blob}")]
told["drained"] = sh("flux resource status -s drain -no '{ranks} {reason}'")
told["jobs"] = sorted(sh("flux jobs -a -no '{status}'").split())
told["stats"] = sh("flux jobs -a --stats-only || true")
told["starts"] = [sh(f"flux job eventlog {id}").count(" start") for id in [long, *many]]
print(json.dumps(told))
"""


def loaded(tmp_path: Path, options: list[str], *how: str) -> Any:
    """What `_LOAD` told."""
    done = start(*options, "flux", "python", "-c", _LOAD, *how, GO=str(tmp_path / "go"))
    assert done.rc == 0, done.err
    assert not done.left
    return json.loads(done.out.splitlines()[-1])


def expected() -> dict[str, Any]:
    return {
        "attached": ["one", "two"],
        "waited": ["clean"],
        "early": "early",
        "ids": 20,
        "kvs": ["1", "2", "hi"],
        "drained": "1 why",
        "jobs": ["CANCELED"] + ["COMPLETED"] * 23,
        "stats": "0 running, 23 completed, 1 failed, 0 pending, 0 inactive purged",
        "starts": [1] * 21,
    }


@pytest.mark.parametrize(
    "modules",
    [
        ["job-manager", "job-list", "job-info", "job-ingest"],
        ["sched-graph", "resource", "heartbeat", "rexec", "cron"],
        ["kvs", "kvs-watch", "content"],
    ],
)
def test_nothing_is_lost_when_a_module_is_loaded_again(modules: list[str], tmp_path: Path) -> None:
    assert loaded(tmp_path, ["--test-size=2"], *modules) == expected()


def test_nor_in_an_instance_with_a_statedir(tmp_path: Path) -> None:
    options = ["--test-size=2", f"-Sstatedir={tmp_path}"]
    assert loaded(tmp_path, options, "job-manager", "kvs", "content") == expected()


def test_nor_on_the_way_into_a_process_and_back(tmp_path: Path) -> None:
    options = ["--test-size=2", "-Ssched.module=simple"]
    modules = ["kvs", "content", "job-list", "resource", "sched-simple"]
    ways = [way + module for module in modules for way in ("--exec ", "--exec ", "")]
    assert loaded(tmp_path, options, *ways) == expected()


def script(body: str, *options: str) -> Done:
    return start(*options, "bash", "-c", "set -e\n" + textwrap.dedent(body))


def test_no_module_takes_an_argument_that_nothing_reads_and_the_loaded_one_stays(tmp_path: Path) -> None:
    names = " ".join(sorted(SERVICES))
    done = script(f"""
        list() {{ flux module list | awk '{{print $1}}' | sort; }}
        before=$(list)
        flux exec -r 0 --bg sh -c 'echo $$ >{tmp_path}/pid; exec sleep inf' >/dev/null
        until [ -s {tmp_path}/pid ]; do sleep 0.05; done
        for module in {names}; do
            if list | grep -qx $module; then how=reload; else how=load; fi
            for argument in nosuch=1 zz; do
                if told=$(flux module $how $module $argument 2>&1); then echo $module takes $argument
                elif ! [[ $told == *$argument* || $told == *${{argument%=1}}* ]]; then echo "$module: $told"; fi
            done
        done
        [ "$(list)" = "$before" ] && flux kvs put a=1 && flux kvs get a && flux exec -r 0 echo ran &&
            kill $(<{tmp_path}/pid) && flux run echo done
    """)
    assert (done.rc, done.out.split(), done.left) == (0, ["1", "ran", "done"], []), done.err


def test_without_a_job_manager_jobs_go_on_and_nobody_can_change_them(tmp_path: Path) -> None:
    """What ends meanwhile is finished afterwards, and what is asked of it then is answered then."""
    done = script(f"""
        until="until [ -e {tmp_path}/go ]; do sleep 0.05; done"
        short=$(flux submit sh -c "$until; echo x >{tmp_path}/ended"); long=$(flux submit sh -c "$until; sleep 1")
        next=$(flux submit -N1 --exclusive true)
        flux job wait-event $short start >/dev/null; flux job wait-event $long start >/dev/null
        flux job wait-event $short clean >/dev/null & waiter=$!
        flux queue drain & drain=$!
        until flux module stats job-info | grep -q '"watchers": 1'; do sleep 0.05; done
        flux module remove job-manager; touch {tmp_path}/go
        ! flux submit true 2>&1; ! flux cancel $long 2>/dev/null
        until [ -e {tmp_path}/ended ]; do sleep 0.05; done; sleep 0.3
        flux jobs -ano '{{state}}'; flux job info $long jobspec >/dev/null; flux kvs dir >/dev/null
        ! flux module list | grep job-manager
        flux module load job-manager
        wait $waiter $drain
        flux jobs -ano '{{status}}' | sort | uniq -c
        for id in $short $long $next; do flux job eventlog $id | awk '{{print $2}}' | tr '\\n' ' '; done
    """)
    events = "submit validate depend priority alloc start finish release free clean "
    assert (done.rc, done.left) == (0, []), done.err
    assert done.out.splitlines() == [
        "[Errno 38] No service matching job-manager.submit is registered",
        "SCHED",
        "RUN",
        "RUN",
        "      3 COMPLETED",
        events * 3,
    ]


@pytest.mark.parametrize("module", ["job-exec", "sched-graph", "job-list", "job-ingest"])
def test_a_partner_that_is_loaded_while_there_is_no_job_manager_begins_when_there_is_one(module: str) -> None:
    done = script(
        f"""
        id=$(flux submit sleep inf); flux job wait-event $id start >/dev/null
        flux module remove job-manager; flux module reload {module}; flux module load job-manager
        flux run echo runs; flux jobs -no '{{status}}' $id
        flux cancel $id || true; flux job wait-event -q $id clean; flux jobs -no '{{status}}' $id
        flux dmesg | grep -cF .err || true
        """
    )
    # Only its exec service takes a job along.
    told = ["FAILED", "FAILED"] if module == "job-exec" else ["RUN", "CANCELED"]
    assert (done.rc, done.out.split(), done.left) == (0, ["runs", *told, "0"], []), done.err


def test_no_job_runs_twice_when_another_exec_service_comes_while_the_job_manager_is_away(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done = script(f"""
        flux submit --quiet --cc=1-150 sh -c 'echo $FLUX_JOB_ID >>{runs}; sleep 0.02'
        flux module remove job-manager; sleep 0.2; flux module reload job-exec; flux module load job-manager
        flux queue drain; flux jobs -ano '{{status}}' | sort | uniq -c
    """)
    assert (done.rc, done.left) == (0, []), done.err
    counts = {status: int(count) for count, status in (line.split() for line in done.out.splitlines())}
    ids = runs.read_text().split()
    assert len(ids) == len(set(ids)) and sum(counts.values()) == 150
    # A job fails if it ran as its exec service left; all others go on.
    assert counts["COMPLETED"] <= len(ids) and counts.get("FAILED", 0) < 20


def test_what_a_job_manager_that_is_away_at_the_end_has_not_read_is_in_the_statedir(tmp_path: Path) -> None:
    option = f"-Sstatedir={tmp_path}"
    body = (
        "id=$(flux submit sh -c 'sleep 0.3'); flux job wait-event $id start; flux module remove job-manager; sleep 0.6"
    )
    done = script(body, option)
    assert (done.rc, done.left) == (0, []), done.err
    assert script("flux jobs -ano '{status}'", option).out == "COMPLETED\n"


def test_a_scheduler_hears_of_drains_from_a_resource_module_that_was_loaded_again() -> None:
    done = script(
        """
        flux resource drain 1; flux module reload resource; flux resource drain 0; flux resource undrain 1
        flux run sh -c 'flux getattr rank'
        flux module remove resource; flux module remove sched-graph; flux module load resource
        flux module load sched-graph
        flux run sh -c 'flux getattr rank'
        flux resource drain 1
        id=$(flux submit -N1 true); flux module reload resource
        flux resource undrain 0; flux job attach $id
        flux jobs -no '{ranks}' $id; flux dmesg | grep -c 'resource was unloaded' || true
        """,
        "--test-size=2",
    )
    assert (done.rc, done.out, done.left) == (0, "1\n1\n0\n0\n", []), done.err


_WRONG = """
running=$(flux submit sleep inf); flux job wait-event -q $running start
modules=$(flux module list | awk 'NR > 1 {print $1}' | grep -v -e ^broker$ -e ^connector)
for module in $modules; do
    flux module reload $module no-such-option=1 2>>errors && echo $module
done
flux module list | awk 'NR > 1 {print $1}' | grep -v -e ^broker$ -e ^connector | sort >after
echo "$modules" | sort | diff - after
flux run echo ran; flux kvs put a=1; flux kvs get a; flux exec -r 1 echo there; flux jobs -no {status} $running
"""


@pytest.mark.parametrize("place", ["0", "1"])
def test_every_module_goes_on_when_its_new_options_are_wrong(place: str, tmp_path: Path) -> None:
    """Those that take any option are printed: they have nothing that options could change."""
    (tmp_path / "wrong.sh").write_text(_WRONG)
    uri = f"$(flux exec -r {place} flux getattr local-uri)"
    done = start("--test-size=2", f"cd {tmp_path}; FLUX_URI={uri} sh wrong.sh")
    *taken, ran, value, there, status = done.out.split("\n")[:-1]
    assert (ran, value, there, status) == ("ran", "1", "there", "RUN"), done
    if place == "0":
        refused = (tmp_path / "errors").read_text()
        assert "job-exec: unknown argument 'no-such-option=1'" in refused
        assert not {"job-exec", "job-ingest", "job-manager", "resource", "sched-graph", "content", "heartbeat"} & {
            *taken
        }
