"""The first things a new user types, in one instance of four brokers, with the output real Flux gives."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from instance import start

ID = r"ƒ[1-9A-HJ-NP-Za-km-z]+"


def test_a_new_users_first_steps():
    assert shutil.which("jq"), "jq must be installed: `make packages` does it as root"
    script = """
    flux resource list
    echo ---; flux submit hostname
    echo ---; flux run hostname
    echo ---; A=$(flux submit sleep 360); B=$(flux submit sleep 360); echo $A; echo $B
    flux job wait-event $B start >/dev/null
    echo ---; flux jobs
    echo ---; flux job info $A jobspec | jq -c .tasks
    echo ---; flux submit --cc=0-1 --wait /bin/true; echo rc=$?
    echo ---; flux submit --cc=0-1 --wait /bin/false; echo rc=$?
    echo ---; flux submit --cc=0-7 sleep inf
    echo ---; flux jobs --filter=inactive
    echo ---; flux jobs --format=long $A $B
    echo ---; flux cancel --all 2>&1; flux queue drain; flux jobs
    """
    done = start("--test-size=4", script)
    parts = [part.strip("\n") for part in done.out.split("---\n")]
    host = parts[2]
    resources = parts[0].splitlines()
    assert resources[0].split() == ["STATE", "NNODES", "NCORES", "NGPUS", "NODELIST"]
    assert resources[1].split()[:2] == ["free", "4"]
    assert resources[1].split()[4] == ",".join([host] * 4) or "[" in resources[1]
    assert [line.split()[0] for line in resources[2:]] == ["allocated", "down"]
    assert re.fullmatch(ID, parts[1])
    first, second = parts[3].split()
    jobs = parts[4].splitlines()
    assert jobs[0] == "       JOBID USER     NAME       ST NTASKS NNODES     TIME INFO"
    assert {line.split()[0] for line in jobs[1:]} == {first, second}
    assert all(line.split()[2:6] == ["sleep", "R", "1", "1"] for line in jobs[1:])
    assert json.loads(parts[5]) == [{"command": ["sleep", "360"], "slot": "task", "count": {"per_slot": 1}}]
    assert parts[6].splitlines()[-1] == "rc=0"
    assert len(re.findall(ID, parts[6])) == 2
    assert parts[7].splitlines()[-1] == "rc=1"
    assert len(re.findall(ID, parts[8])) == 8
    inactive = [line.split()[3] for line in parts[9].splitlines()[1:]]
    assert sorted(inactive) == ["CD"] * 4 + ["F"] * 2
    long = parts[10].splitlines()
    assert " ".join(long[0].split()) == "JOBID USER NAME STATUS NTASKS NNODES T_SUBMIT T_REMAINING TIME INFO"
    assert [line.split()[3] for line in long[1:]] == ["RUN", "RUN"]
    assert parts[11].splitlines() == ["flux-cancel: Canceled 10 jobs (0 errors)", jobs[0]]
    assert done.rc == 0
    assert not done.left


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("true", 0),
        ("sh -c 'exit 3'", 3),
        ("nosuchcommand", 127),
        ("/etc/passwd", 126),
        ("sh -c 'kill -9 $$'", 137),
        ("-t 1s sleep 30", 142),
        ("-n2 sh -c 'exit $FLUX_TASK_RANK'", 1),
    ],
)
def test_the_exit_status_of_run_is_the_jobs(command, status):
    done = start(f"flux run {command}")
    assert done.rc == status
    assert not done.left


def test_standard_input_reaches_every_task_and_labels_tell_them_apart():
    done = start("echo hello | flux run -n2 -l cat | sort")
    assert done.out == "0: hello\n1: hello\n"


def test_output_files_take_templates():
    done = start(
        "cd $TMPDIR; flux run -n2 --output=out.{{taskid}} sh -c 'echo $FLUX_TASK_RANK'; cat out.0 out.1; rm -f out.*"
    )
    assert done.out == "0\n1\n"
