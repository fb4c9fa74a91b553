"""Every recorded command line against an instance of ours: same status, output and error text as real Flux gave.

The lines of one recording run in order in one instance, as they were recorded, because later lines depend on what
earlier ones did. What may differ stands in masks.toml, with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_rules import OUTPUTS, differences, read

HERE = Path(__file__).parent
RECORDINGS = HERE.parent / "data" / "commands"
RULES = read(HERE / "masks.toml")
INSTANCES = {
    "default": ["--test-size=4", "--test-hosts=vm,vm,vm,vm"],
    "queues": ["--test-size=4", "--test-hosts=node[0-3]", f"--config-path={RECORDINGS / 'queues.toml'}"],
}

pytestmark = pytest.mark.slow


def recorded(name: str) -> list[dict]:
    return [json.loads(line) for line in (RECORDINGS / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory):
    """Play a recording in a fresh instance; the results by line."""
    done: dict[str, list[dict]] = {}

    def play(name: str) -> list[dict]:
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            home = folder / "home"
            home.mkdir()
            results = folder / "results.jsonl"
            runner = [sys.executable, str(HERE / "recorded_runner.py")]
            flux = shutil.which("flux", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
            env = {key: value for key, value in os.environ.items() if not key.startswith("FLUX_")}
            subprocess.run(
                [flux, "start", *INSTANCES[name], *runner, str(RECORDINGS / f"{name}.jsonl"), str(home), str(results)],
                env=env,
                stdin=subprocess.DEVNULL,
                timeout=600,
                check=False,
            )
            done[name] = [json.loads(line) for line in results.read_text().splitlines()]
            for outcome in done[name]:
                for key in OUTPUTS:
                    outcome[key] = outcome[key].replace(str(home), "/home/user").replace(os.uname().nodename, "vm")
        return done[name]

    return play


CASES = [(name, index, line) for name in INSTANCES for index, line in enumerate(recorded(name))]


@pytest.mark.parametrize(("name", "index", "line"), CASES, ids=[f"{name}-{index:03}" for name, index, _ in CASES])
def test_line_answers_as_real_flux_did(name, index, line, played):
    outcomes = played(name)
    assert index < len(outcomes), "the instance ended before this line"
    outcome = outcomes[index]
    rule = RULES.differs.get(line["command"])
    assert differences(line, outcome, RULES, rule) == [], line["command"]
    if rule is not None and not rule.sometimes:
        assert differences(line, outcome, RULES, None), f"masks.toml need not list {line['command']}"


def test_every_rule_is_of_a_recorded_line_and_says_what_differs():
    commands = {line["command"] for _, _, line in CASES}
    assert RULES.differs.keys() <= commands
    empty = [rule.command for rule in RULES.differs.values() if not (rule.ours or rule.masks or rule.any_order)]
    assert empty == []
