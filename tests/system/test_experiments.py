"""`headrace experiment run`, `status` and `resume` with real brokers: results, failures, interruptions and kills."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from instance import FLUX, clean_env, processes_with
from small_disk import mounted
from tests.service.conftest import running, serving

import seeds
from sizes import limit, size
from waiting import until

HEADRACE = os.path.join(os.path.dirname(sys.executable), "headrace")


class Lab:
    """A folder for an experiment's file and results, and a temporary folder in which nothing must be left."""

    def __init__(self, path: Path, temporary: str) -> None:
        self.path = path
        self.temporary = temporary
        self.results = path / "results"

    def write(self, text: str) -> None:
        (self.path / "e.yaml").write_text(text)

    def command(self, *words: str, inside: int = 0) -> list[str]:
        """A command line, `inside` an instance of so many brokers."""
        return [*([FLUX, "start", "-s", str(inside)] if inside else []), HEADRACE, "experiment", *words]

    def env(self) -> dict[str, str]:
        return clean_env(TMPDIR=self.temporary)

    def start(self, *words: str, inside: int = 0) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words, inside=inside),
            cwd=self.path,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def do(self, *words: str, inside: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, inside=inside)
        try:
            out, err = process.communicate(timeout=limit(300))
        finally:
            process.kill()
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def run(self, *words: str, inside: int = 0) -> subprocess.CompletedProcess[str]:
        return self.do("run", "e.yaml", "--out", "results", *words, inside=inside)

    def resume(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.do("resume", "results", *words)

    def status(self, *words: str) -> str:
        return self.do("status", "results", *words).stdout

    def kept(self) -> dict[str, Any]:
        """The results of all runs, by CELL/NUMBER."""
        return {
            f"{path.parent.parent.name}/{path.parent.name}": json.loads(path.read_text())
            for path in self.results.glob("runs/*/*/result.json")
        }

    def states(self) -> dict[str, str]:
        return {name: result["state"] for name, result in sorted(self.kept().items())}


def state(experiment: Lab) -> str:
    return str(json.loads(experiment.status("--json"))["state"])


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[Lab]:
    # Directly below /tmp: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="hrx-", dir="/tmp") as temporary:
        yield Lab(tmp_path, temporary)
        until(lambda: not processes_with(f"TMPDIR={temporary}"))
        assert [name for name in os.listdir(temporary) if name.startswith("experiment-")] == []


# A program that notes its start and waits until it may end.
WAITING = """
jobs:
  wait:
    command: 'touch {0}/began-$(basename $PWD); while ! test -e {0}/go; do sleep 0.05; done'
    repeats: 3
matrix: {{size: [1]}}
"""


def test_a_matrix_runs_on_local_brokers_and_its_folder_tells_all(experiment: Lab) -> None:
    experiment.write("""
name: matrix
targets: {here: {type: local, up: 'echo up >> up.txt', down: 'echo down >> up.txt'}}
parameters: {word: [a, b]}
matrix: {size: [1, 2]}
jobs:
  say:
    command: 'cat in.txt t.txt; echo "loop 2.5"; hostname > host.dat; echo $OMP_NUM_THREADS >&2'
    environment: {OMP_NUM_THREADS: 7}
    files: [in.txt, {template: t.txt}, {out: '*.dat'}]
    metrics: {loop: {regex: 'loop ([0-9.]+)'}}
    check: {regex: '^word [ab]$'}
    repeats: 2
    warmup: 1
""")
    (experiment.path / "in.txt").write_text("input\n")
    (experiment.path / "t.txt").write_text("word {{word}}\n")
    done = experiment.run("--jobs", "1", "--layout", "flux-cloud", "--target", "here", "--only", "job=say")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.splitlines()[-2:] == ["12/12 runs, 0 running, 0 failed", "report: results/report.html"]
    assert (experiment.results / "ro-crate-metadata.json").exists() and list(
        experiment.results.glob("data/here/*/meta.json")
    )
    kept = experiment.kept()
    assert len(kept) == 12 and {result["state"] for result in kept.values()} == {"completed"}
    cell = next(name for name in kept if "2" in name.partition("/")[0] and name.endswith("/2"))
    folder, result = experiment.results / "runs" / cell, kept[cell]
    assert sorted(os.listdir(folder)) == ["R", "eventlog", "host.dat", "result.json", "stderr", "stdout"]
    word = result["parameters"]["word"]
    assert Counter((folder / "stdout").read_text().splitlines()) == {"input": 2, f"word {word}": 2, "loop 2.5": 2}
    assert (folder / "stderr").read_text() == "7\n7\n"
    assert (result["metrics"], result["nodes"], result["exit"]) == ({"loop": 2.5}, "node[0-1]", 0)
    assert list(result["phases"]) == ["created", "scheduled", "ready", "program", "output", "ended"]
    assert list(result["phases"].values()) == sorted(result["phases"].values())
    assert [json.loads(line)["name"] for line in (folder / "eventlog").open()][-1] == "clean"
    assert (experiment.path / "up.txt").read_text() == "up\ndown\n"
    session = json.loads((experiment.results / "sessions/1.json").read_text())
    assert {"down", "up"} <= session["targets"]["here"].keys()
    provenance = json.loads((experiment.results / "provenance.json").read_text())
    assert provenance["machine"]["cores"] and "TMPDIR" not in provenance["environment"]
    assert state(experiment) == "complete"
    again = experiment.run()
    assert again.returncode == 1 and "continue it with `headrace experiment resume`" in again.stderr


FAULTS = {
    "bad": ("exit 3", "", "failed", "exit 3"),
    "missing": ("nonexistent-program", "", "failed", "nonexistent-program: No such file or directory"),
    "silent": ("true", "metrics: {m: {regex: 'time (.*)'}}", "failed", "metric m: no match of 'time (.*)' in stdout"),
    "slow": ("sleep 60", "timeout: 1s", "timeout", "time limit"),
    "killed": ("kill -9 $$", "", "failed", "exit 137"),
    "clash": ("touch R", "files: [{out: R}]", "failed", "output R: has the name of a file that each run has"),
}


def test_each_failed_run_says_why_and_the_others_go_on(experiment: Lab) -> None:
    jobs = "".join(f"  {name}: {{command: '{command}', {more}}}\n" for name, (command, more, _, _) in FAULTS.items())
    experiment.write(f"matrix: {{size: [1]}}\njobs:\n{jobs}  good: {{command: 'exit 4', check: {{exit: 4}}}}\n")
    done = experiment.run()
    assert done.returncode == 1 and done.stderr.startswith("results: results"), done.stderr
    kept = experiment.kept()
    assert kept["good-1/1"]["state"] == "completed"
    for name, (_, _, state, reason) in FAULTS.items():
        assert kept[f"{name}-1/1"]["state"] == state, kept[f"{name}-1/1"]
        assert reason in kept[f"{name}-1/1"]["reason"]
    printed = experiment.status()
    assert "bad-1/1: failed: exit 3" in printed and "7 of 7 runs done, 6 failed" in printed


def test_in_an_instance_cells_are_sub_instances_and_a_target_that_is_gone_stops_no_other(experiment: Lab) -> None:
    experiment.write("""
targets: {inst: {type: instance}, gone: {type: instance, uri: 'local:///nonexistent'}}
matrix: {size: [1, 2, 9]}
jobs: {nodes: {command: 'flux getattr size', repeats: 2}}
""")
    done = experiment.run(inside=3)
    assert done.returncode == 1
    assert experiment.states() == {f"nodes-{nodes}-inst/{n}": "completed" for nodes in (1, 2) for n in (1, 2)}
    assert (experiment.results / "runs/nodes-2-inst/2/stdout").read_text() == "2\n2\n"
    assert "target inst: size 9 is more than its 3 nodes (2 runs were not started)" in done.stderr
    assert "target gone: cannot reach the instance local:///nonexistent" in done.stderr


@contextmanager
def waiting_run(experiment: Lab) -> Iterator[subprocess.Popen[str]]:
    """An experiment of three runs, of which the first waits for the file `go`."""
    experiment.write(WAITING.format(experiment.path))
    process = experiment.start("run", "e.yaml", "--out", "results")
    try:
        until(lambda: list(experiment.path.glob("began-*")))
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_service_shows_an_experiment_as_it_runs_and_then_its_report(experiment: Lab) -> None:
    options = f"--experiments={experiment.path}"
    with waiting_run(experiment) as process, running() as instance, serving(instance.uri, options) as service:

        def get(path: str) -> tuple[int, str]:
            answer = service.open(path)
            return answer.status, answer.read().decode()

        def shown() -> dict[str, Any]:
            return dict(json.loads(get("/v2/experiments/results")[1]))

        found = shown()
        assert (found["state"], found["done"], found["cells"][0]["running"]) == ("running", 0, 1)
        assert "▶</span> running" in get("/experiments")[1]
        assert "No run has ended." in get("/experiments/results")[1]
        assert get("/experiments/results/report.html")[0] == 404
        (experiment.path / "go").touch()
        until(lambda: shown()["state"] == "complete")
        process.communicate(timeout=limit(60))
        assert [run["state"] for run in shown()["runs"]] == ["completed"] * 3
        text = get("/experiments/results")[1]
        assert "wait-1/3" in text and "3 of 3 runs" in text and shown()["has_report"]
        assert "3 of 3" in get("/experiments/results/report.html")[1]
    assert process.returncode == 0


def test_ctrl_c_lets_the_run_end_and_begins_no_other(experiment: Lab) -> None:
    with waiting_run(experiment) as process:
        second = experiment.resume()
        assert second.returncode == 1 and f"process {process.pid} on " in second.stderr
        assert state(experiment) == "running"
        process.send_signal(signal.SIGINT)
        (experiment.path / "go").touch()
        _, err = process.communicate(timeout=limit(60))
    assert process.returncode == 130 and "continue with `headrace experiment resume results`" in err
    assert experiment.states() == {"wait-1/1": "completed"}
    assert state(experiment) == "interrupted"
    assert experiment.resume("--jobs", "2", "--layout", "flux-cloud").returncode == 0
    assert experiment.states() == {f"wait-1/{n}": "completed" for n in (1, 2, 3)}


def test_a_second_ctrl_c_ends_the_run_which_does_not_count(experiment: Lab) -> None:
    with waiting_run(experiment) as process:
        # The run that waits would never end by itself.
        until(lambda: process.send_signal(signal.SIGINT) or process.poll() is not None, pause=0.2)
    assert process.returncode == 130
    assert experiment.states() == {} and os.listdir(experiment.results / "runs/wait-1") == []


def test_brokers_that_are_killed_cost_a_run_which_is_retried(experiment: Lab) -> None:
    text = """
jobs:
  dies:
    command: 'if mkdir {0}/first; then kill -9 $(flux getattr broker.pid); sleep 60; fi'
    retry: {1}
  next: {{command: 'true'}}
matrix: {{size: [1]}}
"""
    experiment.write(text.format(experiment.path, 1))
    assert experiment.run().returncode == 0
    assert experiment.kept()["dies-1/1"]["attempt"] == 2
    assert experiment.states() == {"dies-1/1": "completed", "next-1/1": "completed"}
    (experiment.path / "first").rmdir()
    experiment.write(text.format(experiment.path, 0))
    experiment.results = experiment.path / "other"
    assert experiment.do("run", "e.yaml", "--out", "other").returncode == 1
    assert experiment.states() == {"dies-1/1": "lost", "next-1/1": "completed"}
    assert "the instance was lost" in experiment.kept()["dies-1/1"]["reason"]


def test_a_full_disk_is_named_and_ended_runs_stay(experiment: Lab) -> None:
    with mounted(experiment.path / "disk", "size=2m") as disk:
        experiment.write("""
jobs:
  fill: {command: 'cat /dev/zero > filler', files: [{out: filler}], check: {exit: 1}, repeats: 3}
matrix: {size: [1]}
""")
        done = experiment.do("run", "e.yaml", "--out", str(disk / "results"))
        assert done.returncode == 1
        assert f"{disk}/results" in done.stderr and "No space left on device" in done.stderr, done.stderr


@pytest.mark.soak
def test_a_run_that_is_killed_at_any_moment_is_resumed_to_exactly_the_planned_runs(experiment: Lab) -> None:
    seed = seeds.seed()
    dice = random.Random(seed)
    experiment.write("jobs: {short: {command: 'sleep 0.02; echo $PWD', repeats: 8}}\nmatrix: {size: [1, 2]}\n")
    planned = {f"short-{nodes}/{n}" for nodes in (1, 2) for n in range(1, 9)}
    kills = size("experiment_kills")
    killed = 0
    while killed < kills:
        before: dict[str, Any] = {}
        while before.keys() != planned:
            words = (
                ("resume", "results")
                if (experiment.results / "plan.json").exists()
                else ("run", "e.yaml", "--out", "results")
            )
            process = experiment.start(*words)
            if killed < kills:
                # A random moment, which is what is tested.
                time.sleep(dice.uniform(0.1, 8))
                process.kill()
                killed += process.poll() is None
            _, err = process.communicate(timeout=limit(120))
            after = experiment.kept()
            assert {name: after.get(name) for name in before} == before, "a run that had ended was run again"
            if process.returncode == 0:
                assert after.keys() == planned, err
            before = after
        assert experiment.resume().returncode == 0
        positions = [result["position"] for result in before.values()]
        assert len(set(positions)) == len(planned)
        assert experiment.status().endswith("complete, 16 of 16 runs done, 0 failed\n")
        subprocess.run(["rm", "-r", experiment.results], check=True)
