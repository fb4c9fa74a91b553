"""Pods that run the Flux of their own image: a Debian image with bash, in which Headrace, at its fixed path, stands for
that Flux. It is mounted by the test, so that nothing but the script starts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from running_operator import MiniClusters

from headrace.images import view


def test_two_pods_run_the_flux_of_their_image(
    miniclusters: MiniClusters, image: Callable[[str], str], tmp_path: Path
) -> None:
    flux = tmp_path / "view"
    view.write(view.build(view.choose_interpreter()), flux)
    for folder in (flux, *flux.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    container = {
        "image": image("debian"),
        "command": "sh -c 'echo task $FLUX_TASK_RANK; exit 3'",
        "environment": {"PATH": f"{view.PREFIX}/bin:/usr/local/bin:/usr/bin:/bin"},
        "volumes": {"flux": {"hostPath": str(flux), "path": view.PREFIX, "readOnly": True}},
    }
    own = {"container": {"disable": True, "mountPath": "/opt/instance"}}
    miniclusters.apply("own", size=2, tasks=2, containers=[container], flux=own, logging={"quiet": True})
    status = miniclusters.phase("own", "Failed")
    assert status["exitCode"] == 3
    assert sorted(line for line in miniclusters.log("own").splitlines() if line.startswith("task ")) == [
        "task 0",
        "task 1",
    ]
    codes = {
        one["spec"]["hostname"]: one["status"]["containerStatuses"][0]["state"].get("terminated", {}).get("exitCode")
        for one in miniclusters.pods("own")
    }
    assert codes["own-0"] == 3 and codes.get("own-1") in (None, 0, 143)
    (config,) = [one for one in miniclusters.get("configmap")["items"] if one["metadata"]["name"] == "own-entrypoint"]
    assert set(config["data"]) == {"wait-0"}
