from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def dry(flux, *argv: str, **env: str) -> dict:
    outcome = flux(*argv[:1], "--dry-run", *argv[1:], **env)
    assert outcome.stderr == ""
    return json.loads(outcome.stdout)


def test_every_option_lands_where_real_flux_puts_it(flux):
    jobspec = dry(
        flux,
        *[
            "run",
            "-N2",
            "-n4",
            "-c1",
            "-t",
            "5m",
            "--requires=fast",
            "--dependency=afterok:f1",
            "--setattr=user.foo=bar",
        ],
        *["-o", "cpu-affinity=per-task", "--queue=batch", "--env=-*", "--job-name=jn", "--output=x.out"],
        "--signal=USR1@10s",
        "a.out",
        "arg",
    )
    rlimit = jobspec["attributes"]["system"]["shell"]["options"].pop("rlimit")
    assert list(rlimit) == ["cpu", "fsize", "data", "stack", "core", "nofile", "as", "rss", "nproc"]
    cwd = jobspec["attributes"]["system"].pop("cwd")
    assert Path(cwd).is_absolute()
    core = {"type": "core", "count": 1}
    assert jobspec == {
        "resources": [
            {"type": "node", "count": 2, "with": [{"type": "slot", "count": 2, "with": [core], "label": "task"}]}
        ],
        "tasks": [{"command": ["a.out", "arg"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {
            "system": {
                "duration": 300.0,
                "environment": {},
                "job": {"name": "jn"},
                "shell": {
                    "options": {
                        "output": {"stdout": {"type": "file", "path": "x.out"}},
                        "signal": {"signum": 10, "timeleft": 10.0},
                        "cpu-affinity": "per-task",
                    }
                },
                "queue": "batch",
                "dependencies": [{"scheme": "afterok", "value": "f1"}],
                "constraints": {"properties": ["fast"]},
            },
            "user": {"foo": "bar"},
        },
        "version": 1,
    }


def test_environment_is_the_submitters_changed_by_the_rules_in_order(flux):
    system = dry(flux, "submit", "--env-remove=A*", "--env=B=2", "--env=C=$B", "x", A1="1", A2="2", D="4")
    environment = system["attributes"]["system"]["environment"]
    assert (environment["B"], environment["C"], environment["D"]) == ("2", "2", "4")
    assert not {"A1", "A2"} & set(environment)


def test_plain_number_is_minutes(flux):
    assert dry(flux, "submit", "-t", "5", "x")["attributes"]["system"]["duration"] == 300.0
    assert dry(flux, "submit", "-t", "5s", "x")["attributes"]["system"]["duration"] == 5.0


def test_nodes_alone_are_ours_alone(flux):
    (node,) = dry(flux, "submit", "-N2", "x")["resources"]
    assert (node["type"], node["count"], node["exclusive"]) == ("node", 2, True)
    (node,) = dry(flux, "submit", "-N2", "-n4", "x")["resources"]
    assert "exclusive" not in node


def test_options_of_the_command_are_left_alone(flux):
    (task,) = dry(flux, "submit", "-n1", "prog", "-n", "5", "--help")["tasks"]
    assert task["command"] == ["prog", "-n", "5", "--help"]
    (task,) = dry(flux, "submit", "--", "prog", "-x")["tasks"]
    assert task["command"] == ["prog", "-x"]


def test_file_travels_with_its_name_and_mode(flux, tmp_path):
    (tmp_path / "data.txt").write_text("hello\n")
    files = dry(flux, "submit", "--add-file=data.txt", "--add-file=run:0755=data.txt", "x")["attributes"]["system"][
        "files"
    ]
    assert files["data.txt"]["data"] == "hello\n"
    assert files["run"]["mode"] & 0o777 == 0o755


@pytest.mark.parametrize(
    ("given", "name", "mode", "content"),
    [
        (r"a=x\n", "a", 0o600, "x\n"),
        (r"a:0640=one\ttwo\nƒ\n", "a", 0o640, "one\ttwo\nƒ\n"),
        (r"my:file=x\n", "my:file", 0o600, "x\n"),
        (r"my:file:700=x\n", "my:file", 0o700, "x\n"),
        (r"f:0800=x\n", "f:0800", 0o600, "x\n"),
        ("a=one\n'two\\n'\n", "a", 0o600, "one\n'two\\n'\n"),
    ],
)
def test_content_on_the_command_line_becomes_a_file(flux, given, name, mode, content):
    files = dry(flux, "submit", f"--add-file={given}", "x")["attributes"]["system"]["files"]
    assert [(key, file["mode"] & 0o7777, file["data"]) for key, file in files.items()] == [(name, mode, content)]


def test_the_brokers_options_end_where_the_user_says(flux):
    for words, command in (
        (["--", "x", "-y"], ["--", "x", "-y"]),
        (["x", "--", "y"], ["x", "--", "y"]),
        (["x"], ["x"]),
    ):
        (task,) = dry(flux, "alloc", "-n1", *words)["tasks"]
        assert task["command"] == ["flux", "broker", *command]


def test_copies_get_their_number_in_arguments_and_environment(flux):
    outcome = flux("submit", "--dry-run", "--cc=1-3", "--output=o.{cc}", "echo", "{cc}")
    specs = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [spec["tasks"][0]["command"][1] for spec in specs] == ["1", "2", "3"]
    system = specs[2]["attributes"]["system"]
    assert system["environment"]["FLUX_JOB_CC"] == "3"
    assert system["shell"]["options"]["output"]["stdout"]["path"] == "o.3"


def test_a_job_without_limits_has_none_in_its_jobspec(flux):
    for command in ("run", "alloc"):
        system = dry(flux, command, "-n1", "--rlimit=-*", "x")["attributes"]["system"]
        assert "rlimit" not in system.get("shell", {}).get("options", {})


def test_bcc_leaves_the_environment_alone(flux):
    outcome = flux("submit", "--dry-run", "--bcc=1", "x")
    assert "FLUX_JOB_CC" not in json.loads(outcome.stdout)["attributes"]["system"]["environment"]


@pytest.mark.parametrize(
    ("argv", "stderr", "rc"),
    [
        (["submit"], "flux-submit: ERROR: job command and arguments are missing\n", 1),
        (["submit", "-t", "abc", "x"], "flux-submit: ERROR: invalid Flux standard duration\n", 1),
        (["run", "--taskmap=block"], "flux-run: ERROR: job command and arguments are missing\n", 1),
        (
            ["submit", "--bogus", "x"],
            "usage: flux submit [OPTIONS...] COMMAND [ARGS...]\nflux submit: error: unrecognized arguments: --bogus\n",
            2,
        ),
        (
            ["run", "--tasks-per-node=0", "x"],
            "flux-run: ERROR: --tasks-per-node must be >= 1\n",
            1,
        ),
        (["run", "--gpus-per-node=1", "x"], "flux-run: ERROR: --gpus-per-node requires --nodes\n", 1),
        (
            ["run", "-N1", "--tasks-per-node=1", "-g1", "x"],
            "flux-run: ERROR: Per-resource options (--cores, --tasks-per-node ...) can't be used with per-task options",
            1,
        ),
        (
            ["batch", "-n1", "--conf=named", "--wrap", "x"],
            "flux-batch: ERROR: --conf: named config 'named' not found\n",
            1,
        ),
        (["batch", "-n1", "--conf=[a\nb", "--wrap", "x"], "flux-batch: ERROR: --conf: failed to parse its text: ", 1),
        (["start", "--xx"], "flux-start: unrecognized option '--xx'\nTry `flux-start --help' for", 1),
        (["submit", "--cc=x", "true"], "flux-submit: ERROR: --cc: ", 1),
        (["submit", "--cc=1", "--bcc=2", "true"], "flux-submit: ERROR: specify only one of --cc or --bcc\n", 1),
        (["submit", "-N0", "true"], "flux-submit: ERROR: node count must be an integer >= 1 (if set)\n", 1),
        (["run", "-N-1", "true"], "flux-run: ERROR: node count must be an integer >= 1 (if set)\n", 1),
        (["submit", "-g-1", "true"], "flux-submit: ERROR: gpus per task must be an integer >= 0\n", 1),
        (["batch", "-n2", "-N0", "--wrap", "true"], "flux-batch: ERROR: node count must be an integer >= 1", 1),
        (["batch", "true"], "flux-batch: ERROR: No such file or directory: 'true'\n", 1),
        (["batch", "--wrap", "true"], "flux-batch: ERROR: Number of slots to allocate must be specified\n", 1),
        (["submit", "--add-file=/tmp", "true"], "flux-submit: ERROR: --add-file: Is a directory: '/tmp'\n", 1),
        (["submit", r"--add-file=x\n", "true"], "flux-submit: ERROR: --add-file: file name missing", 1),
        (["submit", r"--add-file=a=\x\n", "true"], r"flux-submit: ERROR: --add-file=a=\x\n: truncated", 1),
        (["submit", "--input=0-1", "true"], "flux-submit: ERROR: per-task input not supported for submit\n", 1),
        (["batch", "-n1", "--input=0", "--wrap", "true"], "flux-batch: ERROR: per-task input not supported for", 1),
        (
            ["submit", "-o", "foo", "-o", "foo.bar=hi", "true"],
            "flux-submit: ERROR: failed to set attributes.system.shell.options.foo.bar to hi: ",
            1,
        ),
        (
            ["submit", "--add-file=/", "true"],
            "flux-submit: ERROR: --add-file=/: path '' must be relative, without '.', '..' or empty parts; use NAME=/",
            1,
        ),
        (
            ["submit", "--add-file=../a=b\nc", "true"],
            "flux-submit: ERROR: --add-file=../a=b\nc: path '../a' must be",
            1,
        ),
        (["jobs"], "flux-jobs: ERROR: Unable to connect to Flux: broker socket /run/flux/local was not found\n", 1),
    ],
)
def test_refusals_say_what_is_wrong(flux, argv, stderr, rc):
    outcome = flux(*argv)
    assert outcome.stderr.startswith(stderr)
    assert outcome.rc == rc


def test_a_directory_that_is_gone_is_named(flux, tmp_path):
    (tmp_path / "folder").mkdir()
    code = "from headrace.cli.main import flux; import sys; sys.exit(flux(['submit', '--dry-run', 'true']))"
    script = f'cd {tmp_path}/folder; rmdir ../folder; {sys.executable} -c "{code}"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == (
        "flux-submit: ERROR: the current directory was removed: change to another, or give one with --cwd\n"
    )


def test_batch_script_may_hold_its_own_options_and_the_command_line_wins(flux, tmp_path):
    (tmp_path / "b.sh").write_text("#!/bin/sh\n# flux: -N2\n# flux: -t 1m\n# flux: --job-name=dir\necho hi\n")
    system = dry(flux, "batch", "-t", "2m", "b.sh", "arg")["attributes"]["system"]
    assert system["duration"] == 120.0
    assert system["job"] == {"name": "dir"}
    assert system["shell"]["options"]["output"]["stdout"]["path"] == "flux-{{id}}.out"
    assert system["files"]["script"]["data"].endswith("echo hi\n")


def test_an_option_of_a_script_that_is_unknown_is_found_by_its_line(flux, tmp_path):
    (tmp_path / "b.sh").write_text("#!/bin/sh\n# flux: -n1\n# flux: --bad-arg\n")
    outcome = flux("batch", "--dry-run", "b.sh")
    assert outcome.stderr.startswith("flux-batch: ERROR: argument parsing failed at b.sh line 3: ")
    assert outcome.rc == 2


def test_an_option_of_a_script_that_is_cut_short_is_refused(flux, tmp_path):
    (tmp_path / "b.sh").write_text("#!/bin/sh\n# flux: -n1\n# flux: --time=15\n")
    outcome = flux("batch", "--dry-run", "b.sh")
    assert outcome.stderr.endswith("line 3: unrecognized arguments: --time=15 (did you mean --time-limit?)\n")
    assert outcome.rc == 2


def test_instance_configuration_travels_as_a_file(flux):
    jobspec = dry(flux, "alloc", "-n1", "--conf=resource.noverify=true", "true")
    assert jobspec["tasks"][0]["command"] == ["flux", "broker", "-c{{tmpdir}}/conf.json", "true"]
    conf = jobspec["attributes"]["system"]["files"]["conf.json"]["data"]
    assert (json.loads(conf) if isinstance(conf, str) else conf) == {"resource": {"noverify": True}}


def test_bulksubmit_combines_lists_in_order(flux):
    outcome = flux("bulksubmit", "--dry-run", "-n{0}", "cmd", "{1}", ":::", "1", "2", ":::", "a", "b")
    assert outcome.stdout == (
        "bulksubmit: submit -n1 cmd a\nbulksubmit: submit -n1 cmd b\n"
        "bulksubmit: submit -n2 cmd a\nbulksubmit: submit -n2 cmd b\n"
    )


@pytest.mark.parametrize("use", ["{.p2}", "{0.p2}"])
def test_bulksubmit_defines_replacements_whose_use_is_use_of_the_input(flux, use):
    outcome = flux("bulksubmit", "--dry-run", "--define=p2=2**int(x)", "-n", use, "hostname", ":::", "0", "1", "2")
    assert outcome.stdout == "".join(f"bulksubmit: submit -n{2**x} hostname\n" for x in range(3))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os", "--define=f=import os: invalid syntax: write a Python expression of x"),
        ("1/int(x)", "--define=f: ZeroDivisionError: division by zero (x is '0')"),
    ],
)
def test_bulksubmit_names_a_definition_that_does_not_work(flux, code, message):
    outcome = flux("bulksubmit", "--dry-run", f"--define=f={code}", "echo", "{.f}", ":::", "0")
    assert (outcome.rc, outcome.stderr) == (1, f"flux-bulksubmit: ERROR: {message}\n")


def test_what_is_not_utf8_is_dropped_from_the_environment_and_refused_elsewhere(flux):
    outcome = flux("run", "--dry-run", "true", X="\udcff", Y="é👍")
    assert outcome.stderr == "warning: environment variable X is not UTF-8 text and is left out of the job\n"
    environment = json.loads(outcome.stdout)["attributes"]["system"]["environment"]
    assert "X" not in environment
    assert environment["Y"] == "é👍"
    outcome = flux("run", "--dry-run", "printf", "%s", "a\udcffb")
    assert (outcome.rc, outcome.stdout) == (1, "")
    assert outcome.stderr == (
        "flux-run: ERROR: argument 2 of the command ('a\\xffb') is not UTF-8 text: a job's must be\n"
    )
    outcome = flux("submit", "--dry-run", "--job-name=\udcff", "true")
    assert outcome.stderr == 'flux-submit: ERROR: name of the job is not UTF-8 text: {"name": "\\udcff"}\n'


def test_bulksubmit_knows_linked_lists_paths_and_counters(flux):
    outcome = flux(
        "bulksubmit", "--dry-run", "c", "{./%}", "{1}", "{seq1}", ":::", "/x/a.c", "/x/b.c", ":::+", "1", "2"
    )
    assert outcome.stdout == "bulksubmit: submit c a 1 1\nbulksubmit: submit c b 2 2\n"
