"""Plans: hosts, options and the shell text, run by a real shell with a stand-in for flux."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.minicluster.api.plan import Plan, batch_script, job_lines, make_plan, one_line
from headrace.minicluster.api.shell_text import Mode
from headrace.minicluster.api.validate import check
from headrace.minicluster.run.local import outer_text, resources, start_command


def plan_of(container: dict[str, Any], **fields: Any) -> Plan:
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "c"}}
    return make_plan(check({**head, "spec": {"containers": [container], **fields}}))


def shell(text: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    full = {"PATH": f"{folder}:/usr/bin:/bin", "HEADRACE_MINI_DIR": str(folder), **env}
    return subprocess.run(["/bin/sh", "-c", text], env=full, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize(
    ("container", "mode"),
    [
        ({}, Mode.INTERACTIVE),
        ({"command": " \n"}, Mode.INTERACTIVE),
        ({"command": "x"}, Mode.SUBMIT),
        ({"commands": {"script": "x"}}, Mode.SUBMIT),
        ({"command": "x", "launcher": True}, Mode.LAUNCHER),
        ({"command": "x", "batch": True}, Mode.BATCH),
    ],
)
def test_the_fields_decide_how_the_command_is_run(container: dict[str, Any], mode: Mode) -> None:
    assert plan_of(container).mode is mode


@pytest.mark.parametrize(("tasks", "flags"), [(0, "-N4"), (1, "-n1"), (3, "-n3"), (4, "-N4 -n4"), (9, "-N4 -n9")])
def test_tasks_and_size_give_nodes_and_tasks_to_the_job(tasks: int, flags: str) -> None:
    plan = plan_of({"command": "prog -x"}, size=4, tasks=tasks)
    assert plan.initial_program == f"flux submit --input=/dev/null {flags} --quiet --watch prog -x\n"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("lmp -v x 2\n  -in file\n", "lmp -v x 2   -in file"),
        ("# first\nhostname\n  # last", "hostname"),
        ("sh -c '\n# kept\necho \"a\nb'\n-x", "sh -c '\n# kept\necho \"a\nb' -x"),
        ('echo "it\\"s\n#x" a', 'echo "it\\"s\n#x" a'),
        ("echo it\\'s\nb", "echo it\\'s b"),
        ("echo a \\\nb", "echo a  b"),
        ("echo a\\", "echo a"),
    ],
)
def test_lines_of_a_command_are_words_of_one_but_for_what_is_in_quotes(command: str, line: str) -> None:
    assert one_line(command) == line
    assert plan_of({"command": command}).initial_program.endswith(f"--watch {line}\n")
    assert plan_of({"command": command, "launcher": True}).initial_program == f"{line}\n"


def test_prefix_submit_command_options_and_debug_are_put_around_the_command() -> None:
    flux = {"submitCommand": "flux run", "optionFlags": "-o mpi=none"}
    plan = plan_of({"command": "x", "commands": {"prefix": "time"}}, flux=flux, logging={"debug": True})
    assert plan.initial_program == "time flux run -N1 -n1 -o mpi=none -vvv --quiet --watch x\n"
    assert plan_of({"command": "x", "launcher": True, "commands": {"prefix": "time"}}).initial_program == "time x\n"


def test_hosts_count_the_largest_size_and_bursts() -> None:
    assert plan_of({}, size=1).hosts == "c-[0]"
    assert plan_of({}, size=2, maxSize=6).hosts == "c-[0-5]"
    bursting = {"leadBroker": {"address": "far", "name": "l", "size": 3}, "clusters": [{"size": 2}]}
    assert plan_of({}, flux={"bursting": bursting}).hosts == "far,l-[1-2],burst-0-[0-1]"
    assert plan_of({}, flux={"bursting": {"hostlist": "x,y"}}).hosts == "x,y"
    as_large = {"clusters": [{"name": "gke"}, {"size": 0}]}
    assert plan_of({}, size=3, flux={"bursting": as_large}).hosts.endswith(",gke-[0-2],burst-1-[0-2]")


def test_a_broker_configuration_is_kept_but_for_what_says_where_brokers_are() -> None:
    plan = plan_of(
        {}, flux={"brokerConfig": "[bootstrap]\nhosts=[]\n[resource]\npath='/R'\n[tbon]\ntcp_user_timeout='1s'"}
    )
    assert plan.config == {"tbon": {"tcp_user_timeout": "1s"}}
    assert plan_of({}, flux={"scheduler": {"queuePolicy": "easy"}}).config["sched-fluxion-qmanager"] == {
        "queue-policy": "easy"
    }


def test_a_script_keeps_the_variables_that_are_escaped(tmp_path: Path) -> None:
    plan = plan_of({"commands": {"script": "echo $NOW \\${LATER}\n"}})
    assert shell(plan.before, tmp_path, NOW="now").returncode == 0
    assert (tmp_path / "script").read_text() == "echo now ${LATER}\n"


def calls_of(text: str, folder: Path, **env: str) -> list[str]:
    (folder / "flux").write_text('#!/bin/sh\necho "$*" >> calls\n')
    (folder / "flux").chmod(0o755)
    assert shell(text, folder, **env).returncode == 0
    return (folder / "calls").read_text().splitlines()


def test_lines_of_a_batch_are_submitted_one_by_one_and_waited_for(tmp_path: Path) -> None:
    script = batch_script("echo one\necho two\n", raw=False)
    assert calls_of(script, tmp_path, FLUX_OUTPUT_DIR="/o") == [
        "submit --flags=waitable --error=/o/job-0.err --output=/o/job-0.out echo one",
        "submit --flags=waitable --error=/o/job-1.err --output=/o/job-1.out echo two",
        "queue drain",
        "jobs -a",
        "job wait --all",
    ]


def test_comments_and_empty_lines_of_a_batch_are_no_jobs_but_count_for_the_names_of_files() -> None:
    lines = "# first\n\n  one \n \n# $(false) \\\ntwo \\\n  # words\n\\\n"
    assert list(job_lines(lines)) == [(2, "one"), (5, "two # words")]
    assert list(job_lines("one \\")) == [(0, "one ")]


def test_a_raw_batch_is_the_script_as_it_is_for_bash_where_there_is_one(tmp_path: Path) -> None:
    plan = plan_of({"command": "# one\n[[ a == a ]] && echo yes\n", "batch": True, "batchRaw": True})
    env = {"HEADRACE_MINI_DIR": str(tmp_path), "FLUX_OUTPUT_DIR": str(tmp_path)}
    subprocess.run(["bash", "-c", plan.lead_before], env={**os.environ, **env}, check=True)
    assert (tmp_path / "flux-job.batch").read_text().split("\n", 1)[1] == "# one\n[[ a == a ]] && echo yes\n"
    (tmp_path / "flux-job.batch").chmod(0o755)
    assert subprocess.run([tmp_path / "flux-job.batch"], capture_output=True, check=True).stdout == b"yes\n"


@pytest.mark.parametrize(("tasks", "flags"), [(0, "-N4"), (2, "-n2"), (8, "-N4 -n8")])
def test_a_batch_has_the_nodes_and_tasks_that_a_job_would_have_and_the_prefix(
    tmp_path: Path, tasks: int, flags: str
) -> None:
    container = {"command": "x", "batch": True, "commands": {"prefix": "env WRAPPED=1"}}
    plan = plan_of(container, size=4, tasks=tasks)
    assert calls_of(plan.initial_program, tmp_path, FLUX_OUTPUT_DIR="/o") == [
        f"batch {flags} --flags=waitable --output=/o/flux-job.out {tmp_path}/flux-job.batch",
        "job wait --all",
    ]
    assert plan.initial_program.startswith("env WRAPPED=1 sh -c ")


def outer(tmp_path: Path, start: str, **spec: Any) -> subprocess.CompletedProcess[str]:
    commands = {name: f"echo {name}" for name in ("init", "pre", "brokerPre", "workerPre", "post")}
    plan = plan_of({"command": "x", "commands": {**commands, **spec.pop("commands", {})}}, **spec)
    (tmp_path / "marks").touch()
    return shell(outer_text(plan, start), tmp_path)


def test_commands_run_once_in_their_order_and_the_status_is_that_of_the_instance(tmp_path: Path) -> None:
    done = outer(tmp_path, "echo brokers; (exit 5)", size=3)
    assert done.stdout.split() == ["init", "pre", "brokerPre", "workerPre", "brokers", "post"]
    assert done.returncode == 5
    assert "workerPre" not in outer(tmp_path, "true", size=1).stdout


def test_quiet_hides_what_the_commands_before_the_brokers_print_but_no_errors(tmp_path: Path) -> None:
    done = outer(tmp_path, "true", size=2, logging={"quiet": True}, commands={"pre": "echo pre; echo wrong >&2"})
    assert (done.stdout, done.stderr) == ("post\n", "wrong\n")


@pytest.mark.parametrize("program", ["/bin/sh", "/bin/bash"])
def test_a_strict_cluster_ends_at_the_first_command_that_fails(tmp_path: Path, program: str) -> None:
    plan = plan_of({"command": "x", "commands": {"init": "false", "pre": "echo no"}}, logging={"strict": True})
    env = {"HEADRACE_MINI_DIR": str(tmp_path)}
    done = subprocess.run([program, "-c", outer_text(plan, "echo no")], env=env, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_sigterm_ends_the_shell_but_not_while_there_are_brokers(tmp_path: Path) -> None:
    assert outer(tmp_path, "true", commands={"init": "kill -TERM $$; echo no"}).returncode == -15
    assert outer(tmp_path, "true", commands={"post": "kill -TERM $$; echo no"}).returncode == -15
    done = outer(tmp_path, "sh -c 'kill -TERM $PPID; exit 3'")
    assert (done.returncode, done.stdout.split()[-1]) == (3, "post")


@pytest.mark.parametrize(("level", "told"), [(6, b"job\n"), (7, b"job\nbroker\n")])
def test_bash_does_not_report_brokers_that_a_signal_ends(tmp_path: Path, level: int, told: bytes) -> None:
    flux = tmp_path / "flux"
    flux.write_text(f"#!/bin/sh\necho job >&{3 if level == 6 else 2}\necho broker >&2\nkill -TERM $$\n")
    flux.chmod(0o755)
    plan = plan_of({"command": "x"}, flux={"logLevel": level})
    text = outer_text(plan, start_command(plan, str(tmp_path), str(flux)))
    env = {"HEADRACE_MINI_DIR": str(tmp_path)}
    done = subprocess.run(["/bin/bash", "-c", text], env=env, capture_output=True, check=False)
    assert (done.stderr, done.returncode) == (told, 143)


def test_variables_set_before_the_brokers_reach_the_job(tmp_path: Path) -> None:
    done = outer(tmp_path, "env", commands={"pre": "ANSWER=42"})
    assert "ANSWER=42" in done.stdout.splitlines()


def test_the_start_command_names_hosts_run_directory_and_attributes() -> None:
    plan = plan_of({"command": "x"}, size=2, flux={"topology": "kary:3", "connectTimeout": "7s", "logLevel": 7})
    words = start_command(plan, "/w", "/bin/flux").split()
    assert words[1:5] == ["/bin/flux", "start", "--test-size=2", "'--test-hosts=c-[0-1]'"]
    assert {"-Stbon.topo=kary:3", "-Stbon.connect_timeout=7s", "-Slog-stderr-level=7"} <= set(words)


@pytest.mark.parametrize(
    ("fields", "option"),
    [
        ({}, ""),
        ({"flux": {}}, ""),
        ({"flux": {"logLevel": 3}}, "-Slog-stderr-level=3"),
        ({"logging": {"quiet": True}}, "-Slog-stderr-level=0"),
    ],
)
def test_a_level_of_the_log_is_passed_on_but_for_the_operators_default(fields: dict[str, Any], option: str) -> None:
    words = start_command(plan_of({"command": "x"}, **fields), "/w", "/bin/flux").split()
    assert [word for word in words if "log-stderr" in word] == [option][: bool(option)]


def test_brokers_that_share_a_machine_get_cores_that_bind_nothing() -> None:
    alone = resources(plan_of({}, size=1))["config"][0]
    shared = resources(plan_of({}, size=2))["config"][0]
    assert alone["hosts"] == "c-[0]" and alone["cores"].startswith("0-")
    assert shared["hosts"] == "c-[0-1]" and not shared["cores"].startswith("0-")
