"""Every way to run a command, in pods of a real Kubernetes: output and status are those of `headrace mini run`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubecluster.cluster import Cluster
from running_operator import MiniClusters

from headrace.images import oci
from headrace.images.layer import file, program

_QUIET = {"logging": {"quiet": True}}
# Lines of the brokers' log are not the job's, and what is said of a batch has ids.
_BROKERS = re.compile(r"^\w{3} \d\d \d\d:\d\d:\d\d\.\d+ |^flux-broker: |^flux-job: |JOBID")


def here(tmp_path: Path, spec: dict[str, Any]) -> tuple[int, list[str]]:
    """Exit status and lines of `headrace mini run` of a MiniCluster."""
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "same"}}
    (tmp_path / "same.yaml").write_text(yaml.safe_dump({**head, "spec": spec}))
    done = subprocess.run(
        [Path(sys.executable).with_name("headrace"), "mini", "run", "-q", "same.yaml"],
        cwd=tmp_path,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, lines(done.stdout + done.stderr)


def lines(text: str) -> list[str]:
    """What the job has said; lines of several tasks have no order."""
    own = [line for line in text.splitlines() if not _BROKERS.search(line) and "not applied" not in line]
    return sorted(line for line in own if not line.startswith(("headrace-mini:", "flux-start:")))


def in_pods(miniclusters: MiniClusters, spec: dict[str, Any]) -> tuple[int, list[str]]:
    miniclusters.apply("same", **spec)
    return miniclusters.ended("same")["exitCode"], lines(miniclusters.log("same"))


@pytest.fixture(scope="module")
def page_image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image that serves `/page` over HTTP, on port 8080, without being told a command."""
    tree = {"bin/busybox": program(Path("/bin/busybox").read_bytes()), "www/page": file(b"served\n")}
    image = oci.Image([tree], {"Entrypoint": ["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/www"]})
    archive = tmp_path_factory.mktemp("page") / "page.tar"
    archive.write_bytes(oci.archive("docker.io/local/page:1", image))
    cluster.load(archive)
    return "local/page:1"


def spec_of(container: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"size": 2, "containers": [{"image": "local/busybox:1", **container}], **_QUIET, **fields}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(
            spec_of(
                {"commands": {"init": "THERE=then", "script": "#!/bin/sh\necho $THERE \\${FLUX_JOB_SIZE}; exit 3\n"}},
                tasks=2,
            ),
            id="script",
        ),
        pytest.param(
            spec_of({"command": "sh -c 'flux run -N2 echo run; flux getattr size; exit 5'", "launcher": True}),
            id="launcher",
        ),
        pytest.param(
            spec_of(
                {
                    "command": "echo one\nsh -c 'echo two; exit 3'",
                    "batch": True,
                    "commands": {"post": "cat $FLUX_OUTPUT_DIR/job-0.out $FLUX_OUTPUT_DIR/job-1.out"},
                },
                tasks=0,
            ),
            id="batch",
        ),
        pytest.param(
            spec_of(
                {
                    "command": "flux run -N2 echo raw\nexit 4",
                    "batch": True,
                    "batchRaw": True,
                    "commands": {"post": "cat $FLUX_OUTPUT_DIR/flux-job.out"},
                },
                tasks=0,
            ),
            id="raw batch",
        ),
        pytest.param(
            spec_of(
                {
                    "command": "sh -c 'echo job $FROM_INIT $FROM_PRE $BY_PREFIX $GIVEN'",
                    "environment": {"GIVEN": "given"},
                    "commands": {
                        "init": "FROM_INIT=init",
                        "pre": "FROM_PRE=$FROM_INIT.pre",
                        "brokerPre": "FROM_PRE=$FROM_PRE.lead",
                        "prefix": "env BY_PREFIX=prefix",
                        "post": "echo post $FROM_PRE",
                    },
                },
                size=1,
            ),
            id="commands",
        ),
        pytest.param(
            spec_of({"command": "echo never", "commands": {"pre": "echo before; false"}}, logging={"strict": True}),
            id="strict",
        ),
    ],
)
def test_a_file_says_and_returns_the_same_here_and_in_pods(
    miniclusters: MiniClusters, tmp_path: Path, spec: dict[str, Any]
) -> None:
    assert in_pods(miniclusters, spec) == here(tmp_path, spec)


def test_times_are_told(miniclusters: MiniClusters) -> None:
    miniclusters.apply("timed", size=2, logging={"quiet": True, "timed": True})
    miniclusters.phase("timed", "Finished")
    told = [line for line in miniclusters.log("timed").splitlines() if line.startswith("FLUXTIME")]
    patterns = [rf"FLUXTIME {name} wall time 0:\d\d\.\d\d" for name in ("fluxsubmit", "fluxstart")]
    assert len(told) == 2
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(patterns, told))


def test_an_interactive_cluster_takes_jobs_until_it_is_shut_down(miniclusters: MiniClusters) -> None:
    containers = [{"image": "local/busybox:1"}]
    miniclusters.apply("stays", size=2, interactive=True, containers=containers, **_QUIET)
    miniclusters.phase("stays", "Running")

    def inside(text: str) -> str:
        return miniclusters.inside("stays", "sh", "-c", f". /mnt/flux/flux-view.sh; {text}")

    said = inside("flux proxy $fluxsocket flux run -N2 hostname")
    assert sorted(said.split()) == ["stays-0", "stays-1"]
    assert inside("cat /mnt/flux/config/etc/flux/system/hostlist") == "stays-[0-1]\n"
    inside("flux proxy $fluxsocket flux shutdown --background")
    status = miniclusters.phase("stays", "Finished")
    assert status["exitCode"] == 0


def test_a_service_has_a_pod_of_its_own(miniclusters: MiniClusters, page_image: str) -> None:
    where = f"served-services.served.{miniclusters.namespace}.svc.cluster.local:8080/page"
    fetch = f"until wget -qO- http://{where} 2>/dev/null; do sleep 0.2; done"
    miniclusters.apply(
        "served",
        containers=[{"image": "local/busybox:1", "command": f"sh -c '{fetch}'"}],
        services=[{"image": page_image, "name": "pages"}],
        **_QUIET,
    )
    miniclusters.phase("served", "Finished")
    assert miniclusters.log("served") == "served\n"


def test_a_container_may_keep_its_images_own_entry_point(miniclusters: MiniClusters, page_image: str) -> None:
    """Beside the one that runs Flux, and in the reach of others by a Service of its name."""
    own, service = "http://localhost:8080/page", f"http://pages.{miniclusters.namespace}:8080/page"
    fetch = f"until wget -qO- {own} && wget -qO- {service}; do sleep 0.2; done"
    pages = {"image": page_image, "name": "pages", "noWrapEntrypoint": True, "ports": [8080]}
    main = {"image": "local/busybox:1", "runFlux": True, "command": f"sh -c '{fetch}'"}
    miniclusters.apply("kept", size=1, containers=[main, pages], **_QUIET)
    miniclusters.phase("kept", "Finished")
    assert miniclusters.log("kept").endswith("served\nserved\n")


def test_a_sidecar_talks_to_the_instance(miniclusters: MiniClusters) -> None:
    side = {
        "image": "local/busybox:1",
        "name": "side",
        # With -N alone the job would want whole nodes, one of which the command has a core of.
        "command": "FLUX_URI=$fluxsocket flux run -N2 -n2 echo from a sidecar; touch /mnt/flux/seen",
        "commands": {"servicePre": "echo begins"},
    }
    main = {
        "image": "local/busybox:1",
        "runFlux": True,
        "command": "sh -c 'until [ -e /mnt/flux/seen ]; do sleep .1; done'",
    }
    miniclusters.apply("beside", size=2, containers=[main, side])
    miniclusters.phase("beside", "Finished")
    said = miniclusters.log("beside", "side").splitlines()
    assert [line for line in said if "sidecar" in line or "begins" in line] == ["begins", *["from a sidecar"] * 2]


def test_the_lead_alone_may_have_a_service(miniclusters: MiniClusters) -> None:
    miniclusters.apply("least", size=2, tasks=2, flux={"minimalService": True}, command="hostname", **_QUIET)
    miniclusters.phase("least", "Finished")
    assert sorted(miniclusters.log("least").split()) == ["least-0", "least-1"]


def test_a_configuration_of_the_users_own_holds(miniclusters: MiniClusters) -> None:
    text = '[resource]\nexclude = "0"\n[bootstrap]\ndefault_port = 1\n'
    miniclusters.apply("configured", size=2, flux={"brokerConfig": text}, command="hostname", **_QUIET)
    miniclusters.phase("configured", "Finished")
    assert miniclusters.log("configured") == "configured-1\n"


def test_pods_that_may_come_later_are_not_waited_for(miniclusters: MiniClusters) -> None:
    miniclusters.apply("fewer", size=2, maxSize=4, minSize=1, tasks=0, command="hostname", **_QUIET)
    miniclusters.phase("fewer", "Finished")
    assert sorted(miniclusters.log("fewer").split()) == ["fewer-0", "fewer-1"]
