"""What is in `/metrics`."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
from tests.service.conftest import Instance

from headrace.service.metrics import demand_nodes
from waiting import until


def values(text: str) -> dict[str, float]:
    """The numbers of a page of metrics by name and labels."""
    rows = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(number) for name, _, number in rows}


@pytest.mark.parametrize(
    ("busy", "wanted", "cores", "nodes"),
    [
        (0, {"nodes": 0, "cores": []}, 4, 0),
        (2, {"nodes": 3, "cores": []}, 4, 5),
        (0, {"nodes": 0, "cores": [[1, 3], [4, 1], [5, 2]]}, 4, 8),
        (1, {"nodes": 0, "cores": [[2, 1]]}, 0, 3),
    ],
)
def test_each_pending_job_needs_nodes_of_its_own(busy: int, wanted: Any, cores: int, nodes: int) -> None:
    assert demand_nodes(busy, wanted, cores) == nodes


def test_the_numbers_are_those_of_the_instance(instance: Instance, served: Any) -> None:
    client = served(instance)
    before = values(client.get("/metrics").text)
    assert before["headrace_demand_nodes"] == 0 and before['headrace_nodes{state="free"}'] == 1
    instance.flux("run", "true")
    held = instance.flux("submit", "-N1", "--exclusive", "sleep", "1000").split()[0]
    waits = instance.flux("submit", "-N1", "--exclusive", "true").split()[0]
    until(lambda: 'headrace_jobs{state="run",queue=""} 1\n' in client.get("/metrics").text)
    until(lambda: 'headrace_jobs{state="sched",queue=""} 1\n' in client.get("/metrics").text)
    found = values(client.get("/metrics").text)
    assert found["headrace_demand_nodes"] == 2 and found["headrace_idle_seconds"] == 0
    assert found['headrace_nodes{state="allocated"}'] == 1 and found['headrace_cores{state="free"}'] == 0
    assert found['headrace_jobs_total{result="completed"}'] == found["headrace_job_run_seconds_count"] == 1
    assert found["headrace_job_wait_seconds_count"] == 2 and found["headrace_loop_lag_seconds_count"] > 0
    assert found['headrace_api_request_seconds_count{interface="metrics",status="2xx"}'] >= 3
    instance.flux("cancel", held, waits)
    until(lambda: values(client.get("/metrics").text)['headrace_jobs_total{result="canceled"}'] == 2)
    until(lambda: values(client.get("/metrics").text)["headrace_idle_seconds"] > 0)


def test_promtool_finds_nothing_wrong_and_no_label_names_a_user_or_a_job(client: Any) -> None:
    client.get("/metrics")
    text = client.get("/metrics").text
    assert set(re.findall(r'(\w+)="', text)) == {"state", "queue", "result", "le", "interface", "status"}
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (make packages)")
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
