"""Containers beside the one that runs Flux: they find the instance, and neither their going on nor their failing
changes how the MiniCluster ends."""

from __future__ import annotations

from patience import until
from running_operator import MiniClusters

# Its job ends once a sidecar has had an answer.
RUNNER = {
    "image": "local/busybox:1",
    "command": "sh -c 'until [ -e /mnt/flux/seen ]; do sleep .1; done; exit 3'",
    "runFlux": True,
}


def test_containers_that_go_on_or_fail_leave_the_end_to_the_job(miniclusters: MiniClusters) -> None:
    beside = [
        {
            "name": "endless",
            "image": "local/busybox:1",
            "command": "flux proxy $fluxsocket flux getattr size; touch /mnt/flux/seen; exec sleep 100000",
        },
        {"name": "failing", "image": "local/busybox:1", "command": "exit 9"},
    ]
    miniclusters.apply("beside", size=1, containers=[RUNNER, *beside], logging={"quiet": True})
    status = miniclusters.phase("beside", "Failed")
    assert status["exitCode"] == 3
    # The Job counts its pods after it has been told to fail.
    until(lambda: miniclusters.get("job", "beside")["status"].get("failed") == 1)
    assert miniclusters.log("beside", "endless").split() == ["1"]
