"""Containers beside the one that runs Flux: they find the instance, and neither their going on nor their failing
changes how the MiniCluster ends."""

from __future__ import annotations

from running_operator import MiniClusters

RUNNER = {"image": "local/busybox:1", "command": "sh -c 'sleep 2; exit 3'", "runFlux": True}


def test_containers_that_go_on_or_fail_leave_the_end_to_the_job(miniclusters: MiniClusters) -> None:
    beside = [
        {
            "name": "endless",
            "image": "local/busybox:1",
            "command": "flux proxy $fluxsocket flux getattr size; exec sleep 100000",
        },
        {"name": "failing", "image": "local/busybox:1", "command": "exit 9"},
    ]
    miniclusters.apply("beside", size=1, containers=[RUNNER, *beside], logging={"quiet": True})
    status = miniclusters.phase("beside", "Failed")
    assert status["exitCode"] == 3
    job = miniclusters.get("job", "beside")
    assert job["status"].get("failed") == 1
    pod = miniclusters.pods("beside")[0]["metadata"]["name"]
    assert miniclusters.kubectl("logs", pod, "-c", "endless").split() == ["1"]
