"""Pods that run the Flux of their own image: a Debian image with bash, in which Headrace, at its fixed path, stands for
that Flux. It is mounted by the test, so that nothing but the script starts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from patience import until
from running_operator import MiniClusters

from headrace.images import view

OWN = {"container": {"disable": True, "mountPath": "/opt/instance"}}


def container_of(image: str, command: str, tmp_path: Path) -> dict[str, Any]:
    """The container of pods that run the Flux of their image, with the folder `tmp_path` at /test."""
    flux = tmp_path / "view"
    view.write(view.build(view.choose_interpreter()), flux)
    for folder in (flux, *flux.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    volumes = {
        "flux": {"hostPath": str(flux), "path": view.PREFIX, "readOnly": True},
        "test": {"hostPath": str(tmp_path), "path": "/test"},
    }
    environment = {"PATH": f"{view.PREFIX}/bin:/usr/local/bin:/usr/bin:/bin"}
    return {"image": image, "command": command, "environment": environment, "volumes": volumes}


def test_two_pods_run_the_flux_of_their_image(
    miniclusters: MiniClusters, image: Callable[[str], str], tmp_path: Path
) -> None:
    container = container_of(image("debian"), "sh -c 'echo task $FLUX_TASK_RANK; exit 3'", tmp_path)
    miniclusters.apply("own", size=2, tasks=2, containers=[container], flux=OWN, logging={"quiet": True})
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


def test_a_deleted_lead_whose_followers_have_ended_with_it_has_all_pods_made_anew(
    miniclusters: MiniClusters, image: Callable[[str], str], tmp_path: Path
) -> None:
    """Followers of an image's own Flux cannot know why their lead has ended, and complete."""
    container = container_of(image("debian"), "sh -c 'until [ -e /test/go ]; do sleep .1; done'", tmp_path)
    miniclusters.apply("anew", size=2, containers=[container], flux=OWN, logging={"quiet": True})
    miniclusters.phase("anew", "Running")
    job = miniclusters.get("job", "anew")["metadata"]["uid"]
    miniclusters.running("anew", 1)
    miniclusters.kubectl("delete", "pod", miniclusters.running("anew"), "--wait=false")
    until(lambda: "LeadReplaced" in miniclusters.events("anew"))
    until(lambda: job not in [one["metadata"]["uid"] for one in miniclusters.get("job")["items"]])
    (tmp_path / "go").touch()
    assert miniclusters.phase("anew", "Finished")["exitCode"] == 0
