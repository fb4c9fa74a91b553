"""Objects that the Flux Operator made, with its scripts byte for byte, run our engine: its view image is ours.

`RUN` has the recorded MiniClusters that can run here, `LEFT_OUT` the others, each with the reason. Several run at a
time: most of a script's life is waiting (15 seconds where a follower comes before the lead).
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import base_images
import diagnosis
import pytest
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import TIMEOUT, until
from recorded_objects import Object, before_creation, recorded, recorded_scripts

from headrace.images import oci
from headrace.images.layer import file, program
from headrace.images.release_images import compat_image

COMPAT = "local/headrace-view-compat:1"
AT_A_TIME = 5


class Case(NamedTuple):
    """What the lead of a recorded MiniCluster writes: whole lines, as regular expressions. `stays` for one without a
    command, which is asked to run `hostname` and shut down. `goes_on` where not all of its containers may end.
    `needs` are objects that the MiniCluster names and does not make. `at_its_end` where some of that is written in the
    script's last milliseconds: containerd may lose what a process writes into a terminal then (one pod of 200 on a
    busy machine), so its pods get none."""

    says: tuple[str, ...] = (r"sample-\d",)
    needs: tuple[Object, ...] = ()
    stays: bool = False
    goes_on: bool = False
    at_its_end: bool = False


def _secret(name: str, **data: str) -> Object:
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}


_ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "flux-sa"}}
_HOSTNAME = Case()
_STAYS = Case(says=(), stays=True)
_WALL = (r"FLUXTIME fluxsubmit wall time 0:\d\d\.\d\d", r"FLUXTIME fluxstart wall time 0:\d\d\.\d\d")
RUN = {
    "elasticity-downsize": _STAYS,
    "emptydir": Case(says=(r"tmpfs .* /dev/shm",)),
    "experimental-bursting-nginx": _STAYS,
    "flux-resource-list": Case(says=(r" +free +4 +\d+ +0 flux-sample-\[0-3\]",)),
    "hello-world": Case(says=("hello world",)),
    "interactive-persistent": _STAYS,
    "nginx-sidecar-service": Case(says=("served",), goes_on=True),
    "scaling-basic": _STAYS,
    "timed": Case(says=("hello world", *_WALL), at_its_end=True),
    "variant-archive-quiet": _HOSTNAME,
    "variant-batch-logs-quiet": Case(says=()),
    "variant-batch-raw": Case(says=(r".* sh -c flux batch -n1 .* Exited \(rc=0\) .*",)),
    "variant-batch-timed": Case(says=_WALL, at_its_end=True),
    "variant-cleanup": _HOSTNAME,
    "variant-commands-all-quiet": Case(says=(r"sample-\d", "post"), at_its_end=True),
    "variant-complete-workers": _HOSTNAME,
    "variant-connect-timeout-empty": _HOSTNAME,
    "variant-container-environment": _HOSTNAME,
    "variant-container-pull": _HOSTNAME,
    "variant-container-pull-policy-and-always": _HOSTNAME,
    "variant-container-secrets": _HOSTNAME._replace(needs=(_secret("db", pw="word"),)),
    "variant-curve-cert": _HOSTNAME,
    "variant-debug": _HOSTNAME,
    "variant-disable-affinity": _HOSTNAME,
    "variant-flux-empty": _HOSTNAME,
    "variant-flux-noeffect-fields": _HOSTNAME,
    "variant-interactive": _STAYS,
    "variant-job-labels": _HOSTNAME,
    "variant-launcher-quiet-timed": Case(says=_WALL[1:], at_its_end=True),
    "variant-log-level-0": _HOSTNAME,
    "variant-maxsize-above": _HOSTNAME,
    "variant-maxsize-equal": _HOSTNAME,
    "variant-minimal-service": _HOSTNAME,
    # Its job waits for two of three brokers; the third one's script has no end where it comes after that of the lead.
    "variant-minsize-maxsize": _HOSTNAME._replace(goes_on=True),
    "variant-no-command": _STAYS,
    "variant-pod-metadata": _HOSTNAME,
    "variant-pod-restart-never": _HOSTNAME,
    "variant-pod-security-context": _HOSTNAME,
    "variant-pod-service-account": _HOSTNAME._replace(needs=(_ACCOUNT,)),
    "variant-queue-policy-easy": _HOSTNAME,
    "variant-quiet": _HOSTNAME,
    "variant-runner-ports-explicit": _HOSTNAME,
    "variant-service-commands-init": _HOSTNAME,
    "variant-services-runflux": _HOSTNAME,
    "variant-sidecar-nowrap": _HOSTNAME._replace(goes_on=True),
    "variant-strict": _HOSTNAME,
    "variant-tasks-0": Case(says=("sample-0", "sample-1")),
    "variant-tasks-below": _HOSTNAME,
    "variant-topology": _HOSTNAME,
    "variant-volume-emptydir": _HOSTNAME,
    "variant-volume-emptydir-memory": _HOSTNAME,
    "variant-volume-secret": _HOSTNAME._replace(needs=(_secret("my-secret", key="value"),)),
    "variant-wrap": Case(says=(r".* socket\(AF_UNIX.*", r".*\+\+\+ exited with 0 \+\+\+")),
    # What strace writes runs into what the job does.
    "variant-wrap-launcher": Case(says=(r".*\+\+\+ exited with 0 \+\+\+",)),
}
_IMAGE = "runs programs of an image that only a registry has"
_DOWNLOADS = "its container beside the brokers downloads a program that waits for the socket"
LEFT_OUT = {
    "custom-config": "its configuration names a Service and a file that are not there",
    "disable-view": "runs the Flux of its image",
    "distributed-fractal": _IMAGE,
    "distributed-gozmq-gke": _IMAGE,
    "elasticity-horizontal-autoscaler-v2-cpu": "its pods ask for more cores than two small nodes have",
    "existing-volumes": "needs a volume with data; test_volumes.py has claims",
    "experimental-bursting-broker-eks": "installs packages of a cloud",
    "experimental-bursting-broker-gke": "installs packages of a cloud",
    "experimental-metrics-api": "installs packages",
    "experimental-multiple-pods-per-node-7": "its pods ask for 20 cores each",
    "lammps-interactive": _IMAGE,
    "mpi-mpich": _IMAGE,
    "pokemon": _IMAGE,
    "services-sidecar-flux-restful": "installs packages",
    "services-sidecar-registry": "downloads a program",
    "simulations-exaworks-ball-bounce": _IMAGE,
    "simulations-sundials": _IMAGE,
    "snakemake": _IMAGE,
    "storage-aws-somospie-mountpoint-s3": "needs storage of a cloud",
    "storage-google-filestore": "needs storage of a cloud",
    "variant-burst-clusters": "waits for all hosts of clusters that are not there",
    "variant-burst-hostlist": "its host list does not have its own pods",
    "variant-burst-lead-broker": "the Flux Operator's configuration is no TOML",
    "variant-burst-lead-broker-port": "the Flux Operator's configuration is no TOML",
    "variant-command-quotes": "its script has a quotation mark too few",
    "variant-container-resources": "asks for a GPU",
    "variant-deadline-0": "Kubernetes starts no pod of such a Job",
    "variant-flux-container": "its scripts write to one mount path and read at another",
    "variant-option-flags": "its job asks for more cores than two small nodes have",
    "variant-pod-resources-runtime-class": "needs a runtime class",
    "variant-pod-runtime-class": "needs a runtime class",
    "variant-sidecar-commands-quiet": _DOWNLOADS,
    "variant-sidecar-script": _DOWNLOADS,
    "variant-size-large": "has 64 pods",
    "variant-tasks-negative": "its job is refused",
    "variant-two-containers-second-flux": _DOWNLOADS,
    "variant-volume-csi": "needs a driver of a cloud",
    "variant-volumes-many": "needs folders of the node and a claim; test_volumes.py has them",
    "volumes": "needs a folder of the node; test_volumes.py has one",
}
RECORDED = recorded()
SCRIPTS = recorded_scripts()


@pytest.fixture(scope="module")
def images(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Put the images that stand in for those of the recordings on the nodes."""
    folder = tmp_path_factory.mktemp("images")
    busybox = program(Path("/bin/busybox").read_bytes())
    page = oci.Image(
        [{"bin/busybox": busybox, "www/index.html": file(b"served\n")}],
        {"Entrypoint": ["/bin/busybox", "httpd", "-f", "-p", "80", "-h", "/www"]},
    )
    made = {COMPAT: compat_image(), "local/page-80:1": page}
    for name, image in made.items():
        archive = folder / "image.tar"
        archive.write_bytes(oci.archive(f"docker.io/{name}", image))
        cluster.load(archive)
    try:
        cluster.load(base_images.IMAGES["traced"]())
    except base_images.Unavailable as exc:
        pytest.skip(str(exc))


class Outcome(NamedTuple):
    """The log of the lead, and for each pod its name, its phase and how often its containers were started again."""

    lead_log: str
    ends: list[tuple[str, str, int]]


def _end_of(pod: Object) -> tuple[str, str, int]:
    status = pod["status"]
    return pod["metadata"]["name"], status["phase"], sum(one["restartCount"] for one in status["containerStatuses"])


class Run:
    """One recorded MiniCluster in the namespace in which it was recorded: its scripts have that in host names."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name, self._case = cluster, name, RUN[name]
        self.objects = [before_creation(one, SCRIPTS[name], COMPAT, _Images()) for one in RECORDED[name]]
        (job,) = (one for one in self.objects if one["kind"] == "Job")
        self._job = job["metadata"]["name"]
        if self._case.at_its_end:
            for container in job["spec"]["template"]["spec"]["containers"]:
                container.update(tty=False, stdin=False)

    def kubectl(self, *words: str, input: str | None = None) -> str:
        return self._cluster.kubectl("-n", self._name, *words, input=input)

    def __call__(self) -> Outcome:
        """What is to be seen of it once it has ended."""
        api = self._cluster.api
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": self._name}})
        try:
            until(lambda: api.get(f"/api/v1/namespaces/{self._name}/serviceaccounts")["items"])
            items = [*self._case.needs, *self.objects]
            self.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
            self._label_lead()
            if self._case.stays:
                self._shut_down()
            if self._case.goes_on:
                until(lambda: self._writes(self._case.says))
            else:
                self._wait_for_end()
            return Outcome(self._lead_log(), [_end_of(pod) for pod in self._pods()])
        finally:
            api.request("DELETE", f"/api/v1/namespaces/{self._name}")

    def lead(self) -> Object | None:
        return next((pod for pod in self._pods() if pod["metadata"]["name"].startswith(f"{self._job}-0-")), None)

    def _lead_log(self) -> str:
        lead = self.lead()
        return self.kubectl("logs", lead["metadata"]["name"], "-c", self._job) if lead else ""

    def _pods(self) -> list[Object]:
        path = f"/api/v1/namespaces/{self._name}/pods?labelSelector=batch.kubernetes.io/job-name%3D{self._job}"
        return list(self._cluster.api.get(path)["items"])

    def _label_lead(self) -> None:
        """The Flux Operator labels pods with their index, by which some of its Services select."""
        until(self.lead)
        lead = self.lead()
        assert lead is not None
        self.kubectl("label", "pod", lead["metadata"]["name"], "job-index=0")

    def _writes(self, lines: tuple[str, ...]) -> bool:
        with contextlib.suppress(KubeError):
            return missing(lines, self._lead_log()) == []
        return False

    def _inside(self, text: str) -> str:
        lead = self.lead()
        assert lead is not None
        shell = ("bash", "-c", f". /mnt/flux/flux-view.sh; export FLUX_URI=$fluxsocket; {text}")
        return self.kubectl("exec", lead["metadata"]["name"], "-c", self._job, "--", *shell)

    def _shut_down(self) -> None:
        size = next(one["spec"]["completions"] for one in self.objects if one["kind"] == "Job")
        hosts = [f"{self._job}-{index}" for index in range(size)]

        def answers() -> bool:
            with contextlib.suppress(KubeError):
                return sorted(self._inside(f"flux run -N{size} hostname").split()) == hosts
            return False

        until(answers)
        self._inside("flux shutdown --background")

    def _wait_for_end(self) -> None:
        try:
            self.kubectl("wait", "--for=condition=Complete", f"job/{self._job}", TIMEOUT)
        except KubeError as exc:
            raise AssertionError(f"{exc}\n{diagnosis.of_namespace(self._cluster, self._name)}") from None


class _Images(dict[str, str]):
    """Ours by the recorded ones: services get a web server, the others a Debian."""

    def __missing__(self, name: str) -> str:
        return "local/page-80:1" if name.startswith("nginx") else "local/traced:1"


def missing(patterns: tuple[str, ...], text: str) -> list[str]:
    """Those that match no whole line of the text."""
    lines = text.splitlines()
    return [one for one in patterns if not any(re.fullmatch(one, line.rstrip()) for line in lines)]


@pytest.fixture(scope="module")
def runs(cluster: Cluster, images: None, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Outcome]]]:
    """The runs of all cases that this session asks for, several at a time, in the order of the tests."""
    asked = [item.callspec.params["name"] for item in request.session.items if _runs_a_case(item)]  # type: ignore[attr-defined]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {name: pool.submit(Run(cluster, name)) for name in asked}
        pool.shutdown(cancel_futures=True)


def _runs_a_case(item: pytest.Item) -> bool:
    return item.path == Path(__file__) and "runs" in getattr(item, "fixturenames", ())


def test_each_recorded_minicluster_is_run_or_left_out_with_a_reason() -> None:
    assert set(RUN) | set(LEFT_OUT) == set(RECORDED)
    assert set(RUN) & set(LEFT_OUT) == set()
    assert set(SCRIPTS) == set(RUN)


@pytest.mark.parametrize("name", RUN)
def test_a_recorded_minicluster_runs_to_its_end(runs: dict[str, Future[Outcome]], name: str) -> None:
    """A follower's script writes "exited cleanly" when its broker has ended, but it does so in its last milliseconds,
    and is not asked for: that each script came to its end at its first start shows the same."""
    lead_log, ends = runs[name].result()
    assert missing(RUN[name].says, lead_log) == [], lead_log
    if not RUN[name].goes_on:
        assert [one for one in ends if one[1:] != ("Succeeded", 0)] == []
