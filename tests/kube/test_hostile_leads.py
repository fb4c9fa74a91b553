"""MiniClusters whose owners mean harm, or want too much: others do not notice, and their own Events tell why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from patience import until
from running_operator import MiniClusters, RunningOperator

from headrace.minicluster.api.size_rules import LARGEST_TEXT

HOSTILE = Path(__file__).parents[1] / "minicluster/run/pod/hostile_lead.py"
PYTHON = "/mnt/flux/view/libexec/python3 -IS"


@pytest.mark.parametrize("how", ["strays", "states", "parts"])
def test_a_lead_that_floods_its_channel_stops_nobody_else(
    miniclusters: MiniClusters, operator: RunningOperator, tmp_path: Path, how: str
) -> None:
    shutil.copy(HOSTILE, tmp_path)
    floods = f"{PYTHON} /test/{HOSTILE.name} /flux_operator_keys/channel.cert 'tcp://*:8051' {how}"
    runner = {
        "image": "local/busybox:1",
        "command": "true",
        "commands": {"brokerPre": floods},
        "volumes": {"test": {"hostPath": str(tmp_path), "path": "/test"}},
    }
    miniclusters.apply("floods", size=1, containers=[runner])
    until(lambda: "ChannelClosed" in miniclusters.events("floods"))
    assert operator.get("healthz")
    miniclusters.apply("works", size=2)
    assert miniclusters.phase("works", "Finished")["exitCode"] == 0
    told = {one["type"]: one for one in miniclusters.status("floods")["conditions"]}
    assert told["ChannelClosed"]["message"].startswith("the lead sent more than")


def test_the_longest_text_runs_and_a_longer_one_is_told_with_the_limit(miniclusters: MiniClusters) -> None:
    def runner(size: int) -> list[dict[str, Any]]:
        line = f": {'x' * 97}\n"
        text = (line * (size // len(line) + 1))[: size - 10] + "\nexit 3\n\n\n"
        return [{"image": "local/busybox:1", "command": "true", "commands": {"pre": text[:size]}}]

    miniclusters.apply("fits", size=1, containers=runner(LARGEST_TEXT))
    assert miniclusters.phase("fits", "Failed")["exitCode"] == 3
    miniclusters.apply("large", size=1, containers=runner(LARGEST_TEXT + 1))
    reason = miniclusters.phase("large", "Invalid")["reason"]
    assert f"spec.containers[0].commands.pre: has {LARGEST_TEXT + 1} bytes, at most {LARGEST_TEXT} fit" in reason
