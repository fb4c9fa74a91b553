"""Spoiled jobspecs, configurations and MiniCluster files, at the validators and through the real commands.

Each is taken or refused with words for the person who wrote it: no traceback, and nothing that only Python would say.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import mutation
from bootstrapped import cluster
from instance import FLUX, clean_env, processes_with, start

import seeds
from headrace.engine.jobs.policy import Policy, PolicyConfigError
from headrace.formats.config import files as configuration
from headrace.formats.spec import jobspec_build
from headrace.formats.spec.jobspec_validate import JobspecError, validate
from headrace.minicluster.api.fields import InvalidMiniCluster
from headrace.minicluster.api.plan import make_plan
from headrace.minicluster.api.validate import load as load_minicluster

# What Python says of a bug of ours.
_PYTHON = re.compile(
    r"Traceback|internal error|object (is not|has no|of type|does not)|unhashable|NoneType|has no attribute|"
    r"not (subscript|iter)able|unsupported operand|missing field '|positional argument|indices must be|"
    r"not supported between|Error\(|^'\w+'$"
)
HEADRACE = str(Path(FLUX).parent / "headrace")
CONFIG = """\
[policy.jobspec.defaults.system]
duration = "10m"
queue = "batch"
[policy.limits]
duration = "2h"
job-size.max.ncores = 64
[queues.batch]
requires = ["batch"]
policy.limits.job-size.max.nnodes = 2
[queues.debug]
policy.jobspec.defaults.system.duration = "5m"
[resource]
noverify = true
exclude = "2"
[[resource.config]]
hosts = "node[0-3]"
cores = "0-1"
gpus = "0"
[[resource.config]]
hosts = "node[0-2]"
properties = ["batch"]
[bootstrap]
default_port = 8050
default_bind = "tcp://eth0:%p"
default_connect = "tcp://%h:%p"
hosts = [{host = "node[0-3]"}]
[access]
allow-guest-user = false
[exec]
kill-timeout = "5s"
term-signal = "SIGTERM"
max-kill-count = 3
[heartbeat]
period = "2s"
[job-manager]
inactive-age-limit = "1d"
inactive-num-limit = 1000
[sched-simple]
mode = "limited=8"
[headrace]
skip-modules = []
"""
CLUSTER = """\
apiVersion: flux-framework.org/v1alpha2
kind: MiniCluster
metadata:
  name: sample
spec:
  size: 4
  maxSize: 8
  tasks: 2
  interactive: false
  logging:
    quiet: true
    timed: true
  flux:
    minimalService: true
    optionFlags: "-ofastload"
    connectTimeout: 5s
  containers:
    - image: example.org/app:1
      command: hostname
      workingDir: /tmp
      environment:
        NAME: value
      volumes:
        data:
          path: /data
          hostPath: /data
      commands:
        pre: echo pre
        post: echo post
      resources:
        limits:
          cpu: 2
          memory: 1Gi
      ports: [8080]
"""


def jobspecs() -> list[dict[str, Any]]:
    shapes = [
        {},
        {"num_tasks": 4, "cores_per_task": 2, "gpus_per_task": 1},
        {"num_tasks": 2, "num_nodes": 2, "exclusive": True},
    ]
    made = [jobspec_build.from_command(["hostname", "-s"], **{"duration": 60, **shape}) for shape in shapes]
    for spec in made:
        spec["attributes"]["system"].update(
            cwd="/tmp",
            environment={"A": "b"},
            constraints={"and": [{"hostlist": ["node[0-1]"]}, {"not": [{"properties": ["slow"]}]}]},
            dependencies=[{"scheme": "after", "value": "ƒ1"}],
            queue="batch",
            shell={"options": {"rlimit": {"nofile": 100}, "output": {"stdout": {"type": "file", "path": "o"}}}},
        )
    return made


def test_a_spoiled_jobspec_is_a_jobspec_error() -> None:
    chosen = seeds.seed()
    dice = random.Random(chosen)
    refused = 0
    for _ in range(2000):
        spec = mutation.mutated(dice, dice.choice(jobspecs()))
        try:
            validate(spec)
        except JobspecError as exc:
            refused += 1
            assert not _PYTHON.search(str(exc)), (chosen, str(exc), spec)
    assert 200 < refused < 2000


def test_a_spoiled_configuration_is_a_configuration_error(tmp_path: Path) -> None:
    chosen = seeds.seed()
    dice = random.Random(chosen)
    (tmp_path / "ok.toml").write_text(CONFIG)
    original = configuration.load(str(tmp_path / "ok.toml"))
    for _ in range(500):
        path = tmp_path / "spoiled.toml"
        path.write_text(mutation.mangled(dice, CONFIG))
        try:
            configuration.load(str(path))
        except configuration.ConfigError as exc:
            assert str(exc).startswith(f"{path}: "), (chosen, str(exc))
    for _ in range(1000):
        spoiled = mutation.mutated(dice, original)
        try:
            Policy(spoiled if isinstance(spoiled, dict) else {})
        except PolicyConfigError as exc:
            assert not _PYTHON.search(str(exc)), (chosen, str(exc), spoiled)


def test_a_spoiled_minicluster_is_told_with_its_problems() -> None:
    chosen = seeds.seed()
    dice = random.Random(chosen)
    make_plan(load_minicluster(CLUSTER).cluster)
    refused = 0
    for _ in range(1000):
        text = mutation.mangled(dice, CLUSTER)
        try:
            make_plan(load_minicluster(text).cluster)
        except InvalidMiniCluster as exc:
            refused += 1
            assert exc.problems
            assert not any(_PYTHON.search(str(problem)) for problem in exc.problems), (chosen, exc.problems, text)
    assert 200 < refused < 1000


def sealed(spec: object) -> str:
    """A `J` as clients make it."""
    head = base64.b64encode(b"version\0i1\0userid\0i%d\0mechanism\0snone\0" % os.getuid()).decode()
    return f"{head}.{base64.b64encode(json.dumps(spec).encode()).decode()}.none"


def test_spoiled_submissions_and_configurations_reach_no_further_than_their_sender() -> None:
    chosen = seeds.seed()
    dice = random.Random(chosen)
    with cluster(1) as brokers:
        brokers.lead()
        with brokers.handle() as handle:

            def ask(topic: str, body: object) -> bool:
                """True when taken; what is said otherwise must be for people."""
                try:
                    handle.rpc(topic, body).get(60)
                except OSError as exc:
                    assert exc.errno not in (errno.EIO, errno.EPROTO), (chosen, topic, str(exc), body)
                    assert not _PYTHON.search(exc.strerror or ""), (chosen, topic, str(exc), body)
                    return False
                return True

            taken = 0
            for _ in range(600):
                spec = mutation.mutated(dice, dice.choice(jobspecs()), 2)
                spoiled = {"J": sealed(spec), "urgency": 16, "flags": 0}
                taken += ask("job-ingest.submit", spoiled)
            original = configuration.setting(CONFIG)
            for _ in range(300):
                spoiled = mutation.mutated(dice, original)
                if isinstance(spoiled, dict):
                    ask("config.load", json.loads(json.dumps(spoiled, default=str), parse_constant=str))
            ask("config.load", {})
            handle.rpc(
                "job-manager.raiseall",
                {"dry_run": False, "userid": -1, "states": 63, "severity": 0, "type": "cancel"},
            ).get(60)
            handle.rpc("job-manager.drain", {}).get(60)
        assert brokers.flux("run", "echo", "alive").stdout == "alive\n", f"seed {chosen}"
        assert "Traceback" not in brokers.log(0), f"seed {chosen}: {brokers.log(0)[-3000:]}"
        assert brokers.finish() == {0: 0}


def test_the_commands_say_what_is_wrong_with_a_file_in_words(tmp_path: Path) -> None:
    chosen = seeds.seed()
    dice = random.Random(chosen)
    spoiled = tmp_path / "spoiled"
    env = clean_env(HR_TEST=str(tmp_path), TMPDIR=str(tmp_path), LANG="C.UTF-8")

    def run(path: Path, *argv: str) -> None:
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        said = done.stderr.decode("utf-8", "replace")
        where = (chosen, argv, said[-2000:], path.read_bytes())
        assert done.returncode in (0, 1, 2), where
        assert bool(said) or done.returncode == 0, where
        assert "Traceback" not in said, where

    without_hosts = CONFIG.replace("[bootstrap]", "[other]")
    for _ in range(6):
        path = spoiled.with_suffix(".toml")
        path.write_text(mutation.mangled(dice, dice.choice([CONFIG, without_hosts]), 2))
        run(path, FLUX, "broker", "-Slog-stderr-level=3", "-c", str(path), "true")
        path = spoiled.with_suffix(".json")
        path.write_text(json.dumps(mutation.mutated(dice, configuration.setting(without_hosts), 2)))
        run(path, FLUX, "broker", "-c", str(path), "true")
        path = spoiled.with_suffix(".yaml")
        path.write_text(mutation.mangled(dice, CLUSTER))
        run(path, HEADRACE, "mini", "validate", str(path))
        path.write_bytes(dice.randbytes(300))
        run(path, HEADRACE, "mini", "validate", str(path))
    assert not processes_with(f"HR_TEST={tmp_path}")


SUBMIT = """
import json, random, subprocess, sys
sys.path[:0] = [sys.argv[3], sys.argv[3] + "/.."]
import mutation, test_hostile_text
dice = random.Random(int(sys.argv[1]))
for number in range(int(sys.argv[2])):
    spec = json.dumps(mutation.mutated(dice, dice.choice(test_hostile_text.jobspecs())))
    done = subprocess.run(["flux", "job", "submit", "-"], input=spec, capture_output=True, text=True)
    assert done.returncode in (0, 1), (done, spec)
    assert "Traceback" not in done.stderr, (done.stderr, spec)
    assert done.returncode == 0 or done.stderr.strip(), spec
"""


def test_job_submit_refuses_spoiled_jobspecs_in_words(tmp_path: Path) -> None:
    chosen = seeds.seed()
    program = tmp_path / "submit.py"
    program.write_text(SUBMIT)
    script = f"{sys.executable} {program} {chosen} 15 {Path(__file__).parent} && flux cancel --all; flux run echo alive"
    done = start(script)
    assert done.out.splitlines()[-1] == "alive", f"seed {chosen}: {done.err[-3000:]}"
    assert "Traceback" not in done.err, f"seed {chosen}: {done.err[-3000:]}"
