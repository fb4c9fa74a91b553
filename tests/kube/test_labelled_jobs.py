"""Admission of Jobs on a real API server: labelled ones become clusters or are refused, others are never reviewed."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from installed import guarded, install
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from msgspec import structs
from patience import until
from running_operator import RunningOperator

from flux_jobs.operator.arbitrary_jobs import jobs as arbitrary_jobs
from flux_jobs.read.samples import container, job
from headrace.flux_jobs.operator.names import ID_LABEL
from headrace.flux_jobs.operator.policy import id_of, original
from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE
from headrace.flux_jobs.read.job import read
from headrace.flux_jobs.read.options import ANNOTATION
from headrace.minicluster.operator.names import JOBS_CONFIGURATION
from headrace.programs.operator.install import Install
from sizes import size

INSTALL = Install(namespace="headrace-jobs")
_HOOK = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{JOBS_CONFIGURATION}"
_REVIEWS = re.compile(
    r'^apiserver_admission_webhook_request_total\{[^}]*name="jobs\.headrace\.flux-framework\.org"[^}]*\} (\d+)', re.M
)

Object = dict[str, Any]


class Jobs:
    """Jobs of one namespace, written as the administrator; refusals are KubeError."""

    def __init__(self, plane: Cluster, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self._path = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    def create(self, body: Object, options: str = "") -> Object:
        return dict(self.plane.api.request("POST", f"{self._path}?{options}", body))

    def get(self, name: str) -> Object:
        return dict(self.plane.api.get(f"{self._path}/{name}"))

    def names(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.plane.api.get(self._path)["items"]]

    def pods(self, name: str) -> list[Object]:
        found = self.plane.api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return [one for one in found if one["metadata"]["labels"].get("job-name") == name]

    def kubectl(self, *words: str, body: Object | None = None) -> str:
        given = () if body is None else ("-f", "-")
        text = None if body is None else json.dumps(body)
        return str(self.plane.kubectl(f"--namespace={self.namespace}", *words, *given, input=text))


def labelled(document: Object) -> Object:
    labels = document["metadata"].get("labels") or {}
    return {**document, "metadata": {**document["metadata"], "labels": {**labels, LABEL_KEY: LABEL_VALUE}}}


def becomes_a_cluster(jobs: Jobs) -> bool:
    """Whether the API server has learned of the webhook and its certificate."""
    try:
        return bool(id_of(jobs.create(labelled(job()), "dryRun=All")))
    except KubeError:
        return False


@pytest.fixture(scope="module")
def operator(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningOperator]:
    """An operator whose webhook stands before the control plane's Jobs; it looks after none of the tests'."""
    install(control_plane, INSTALL)
    folder = tmp_path_factory.mktemp("jobs")
    with guarded(control_plane, INSTALL, folder, f"--namespace={INSTALL.namespace}") as found:
        until(lambda: becomes_a_cluster(Jobs(control_plane, "default")))
        yield found


@pytest.fixture
def jobs(operator: RunningOperator, control_plane: Cluster, namespace: str) -> Jobs:
    return Jobs(control_plane, namespace)


@pytest.fixture(scope="module")
def always(operator: RunningOperator, control_plane: Cluster) -> Jobs:
    """For dry runs: a namespace that is always there."""
    return Jobs(control_plane, "default")


@pytest.mark.parametrize("words", [("apply",), ("apply", "--server-side"), ("create",)])
def test_a_job_that_has_the_label_when_it_is_made_is_a_cluster(jobs: Jobs, words: tuple[str, ...]) -> None:
    jobs.kubectl(*words, body=labelled(job(size=2)))
    found = jobs.get("hello")
    (broker,) = found["spec"]["template"]["spec"]["containers"]
    assert broker["command"] == ["/mnt/flux/view/bin/headrace-pod", "cluster"] and broker["args"] == ["hostname"]
    assert found["metadata"]["labels"][ID_LABEL] == id_of(found) != ""
    assert found["spec"]["podReplacementPolicy"] == "Failed", "the API server's default is TerminatingOrFailed"
    # What the operator makes the plan of is the Job that was applied.
    before = read({**job(size=2), "metadata": {**found["metadata"], "labels": {}}})
    assert structs.replace(read(original(found)), job={}) == structs.replace(before, job={})


def test_each_job_of_one_generated_name_is_a_cluster_of_its_own(jobs: Jobs) -> None:
    body = labelled(job())
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = "sweep-"
    assert len({id_of(jobs.create(body)) for _ in range(2)}) == 2


def test_a_dry_run_shows_the_cluster_and_makes_nothing(jobs: Jobs) -> None:
    shown = json.loads(jobs.kubectl("create", "--dry-run=server", "-o", "json", body=labelled(job())))
    assert id_of(shown)
    assert jobs.names() == []


OPTIONS = f"metadata.annotations.{ANNOTATION}"
POD = "spec.template.spec"
MAIN = f"{POD}.containers[0]"


def with_pod(**fields: Any) -> Object:
    return job(pod={"containers": [container()], **fields})


def with_container(**fields: Any) -> Object:
    return job(pod={"containers": [container(**fields)]})


REFUSED = [
    (job(completions=3), "spec.completions: must be 2 (parallelism)"),
    (job(size=0), "spec.parallelism: must be 1 or more"),
    (with_container(command=None), f"{MAIN}.command: is required, because the entry point of the image is not known"),
    (job("{container: other}"), f"{OPTIONS}.container: 'other' is not a container of the pod (its containers: main)"),
    (with_pod(containers=[container(), container(name="b")]), f"{OPTIONS}.container: must say which of several"),
    (job("{run: all}"), f"{OPTIONS}.run: must be one of tasks, node, program"),
    (job("{nodes: 2}"), f"{OPTIONS}.nodes: is not an option; known are container, run,"),
    (job("{maxSize: 1}"), f"{OPTIONS}.maxSize: must be at least 2 (parallelism)"),
    (job("{sharedMemory: much}"), f"{OPTIONS}.sharedMemory: must be a quantity such as 1Gi, or none"),
    (job("- a"), f"{OPTIONS}: must be a map in YAML or JSON"),
    (
        with_pod(volumes=[{"name": "headrace-view", "emptyDir": {}}]),
        f"{POD}.volumes[0].name: headrace-view is the name of a volume of Headrace: choose another name",
    ),
    (
        with_pod(initContainers=[container(name="headrace-view")]),
        f"{POD}.initContainers[0].name: headrace-view is the name of Headrace's own container",
    ),
    (
        with_pod(
            volumes=[{"name": "a", "emptyDir": {}}],
            containers=[container(volumeMounts=[{"name": "a", "mountPath": "/mnt/headrace/x"}])],
        ),
        f"{MAIN}.volumeMounts[0].mountPath: /mnt/headrace/x is used by Headrace",
    ),
    (
        with_container(ports=[{"containerPort": 8050}]),
        f"{MAIN}.ports[0].containerPort: 8050 is a port that Headrace uses",
    ),
    (
        with_container(ports=[{"containerPort": 8051}]),
        f"{MAIN}.ports[0].containerPort: 8051 is a port that Headrace uses",
    ),
    (
        with_container(env=[{"name": "HEADRACE_POD_NAMESPACE", "value": "x"}]),
        f"{MAIN}.env[0].name: HEADRACE_POD_NAMESPACE is set by Kubernetes or Headrace in each pod",
    ),
    (
        job(successPolicy={"rules": [{"succeededIndexes": "1"}]}),
        "spec.successPolicy.rules[0].succeededIndexes: must include index 0, the lead",
    ),
    (job(name="a" * 62), f"metadata.name: is too long: the last host, {'a' * 62}-1, must have at most 63 characters"),
]


@pytest.mark.parametrize(("document", "line"), [pytest.param(*one, id=one[1].partition(": ")[0]) for one in REFUSED])
def test_what_cannot_be_a_cluster_is_refused_as_kubectl_shows_it(always: Jobs, document: Object, line: str) -> None:
    with pytest.raises(KubeError) as refused:
        always.kubectl("create", "--dry-run=server", body=labelled(document))
    said = str(refused.value)
    name = document["metadata"]["name"]
    assert said.startswith(f'The Job "{name}" is invalid: {line}'), said


def test_all_problems_are_told_at_once(always: Jobs) -> None:
    with pytest.raises(KubeError) as refused:
        always.kubectl("create", "--dry-run=server", body=labelled(job("{run: all, spread: far}", completions=3)))
    fields = re.findall(r"^\* (\S+):", str(refused.value), re.M)
    assert fields == [f"{OPTIONS}.run", f"{OPTIONS}.spread", "spec.completions"]


def test_the_label_cannot_be_put_on_a_job_that_exists(jobs: Jobs) -> None:
    jobs.create(job(suspend=True))
    with pytest.raises(KubeError, match=r"cannot be added to an existing Job.*: create the Job with the label"):
        jobs.kubectl("label", "job", "hello", f"{LABEL_KEY}={LABEL_VALUE}")
    assert LABEL_KEY not in (jobs.get("hello")["metadata"].get("labels") or {})
    jobs.kubectl("label", "job", "hello", "other=label")


def reviews(plane: Cluster) -> int:
    """The number of times that the API server has asked the webhook about a Job."""
    return sum(map(int, _REVIEWS.findall(str(plane.kubectl("get", "--raw", "/metrics")))))


def test_a_cluster_is_changed_and_deleted_as_any_job(jobs: Jobs, control_plane: Cluster) -> None:
    jobs.create(labelled(job(suspend=True)))
    before = reviews(control_plane)
    jobs.kubectl("label", "job", "hello", "other=label")
    jobs.kubectl("patch", "job", "hello", "--type=merge", "-p", '{"spec": {"parallelism": 3, "completions": 3}}')
    # A queue says where the pods of a suspended Job may run.
    placed = {"metadata": {"labels": {"queue": "q"}}, "spec": {"nodeSelector": {"zone": "a"}}}
    jobs.kubectl("patch", "job", "hello", "--type=strategic", "-p", json.dumps({"spec": {"template": placed}}))
    jobs.kubectl("patch", "job", "hello", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    jobs.kubectl("delete", "job", "hello", "--cascade=foreground")
    assert reviews(control_plane) == before


def test_a_cluster_keeps_its_label(jobs: Jobs) -> None:
    stored = jobs.create(labelled(job(suspend=True)))
    for words in (
        ("label", "job", "hello", f"{LABEL_KEY}-"),
        ("label", "job", "hello", f"{LABEL_KEY}=no", "--overwrite"),
    ):
        jobs.kubectl(*words)
        assert jobs.get("hello")["metadata"]["labels"] == stored["metadata"]["labels"]


# A file with each field that admission overwrites or adds to.
_TERM = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
_FILE = job(
    pod={
        "containers": [
            container(
                command=["sh", "-c"],
                args=["sleep 1"],
                env=[{"name": "A", "value": "1"}],
                resources={"limits": {"cpu": "1000m", "memory": "1024Mi"}},
                volumeMounts=[{"name": "data", "mountPath": "/data"}],
            ),
            container(name="logs"),
        ],
        "initContainers": [container(name="setup")],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "restartPolicy": "OnFailure",
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM]}},
    },
    options="{container: main, spread: required}",
    podReplacementPolicy="TerminatingOrFailed",
    suspend=True,
)
AGAIN = [("apply",), ("apply", "--server-side"), ("replace",)]


@pytest.mark.parametrize("words", AGAIN, ids=" ".join)
@pytest.mark.parametrize("document", [job(suspend=True), _FILE], ids=["small", "full"])
def test_a_file_may_be_applied_again(jobs: Jobs, words: tuple[str, ...], document: Object) -> None:
    first = ("create",) if words == ("replace",) else words
    jobs.kubectl(*first, body=labelled(document))
    before = jobs.get("hello")
    for _ in range(2):
        jobs.kubectl(*words, body=labelled(document))
        after = jobs.get("hello")
        assert after["spec"] == before["spec"]
        assert after["metadata"]["labels"] == before["metadata"]["labels"]
    # A size, and where the pods of a suspended Job may run.
    changed = copy.deepcopy(document)
    changed["spec"] |= {"parallelism": 3, "completions": 3}
    changed["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "a"}
    jobs.kubectl(*words, body=labelled(changed))
    found = jobs.get("hello")["spec"]
    template = copy.deepcopy(before["spec"]["template"])
    template["spec"]["nodeSelector"] = {"zone": "a"}
    assert found == {**before["spec"], "parallelism": 3, "completions": 3, "template": template}


@pytest.mark.parametrize("words", AGAIN, ids=" ".join)
def test_a_file_with_another_command_is_refused_by_this_name(jobs: Jobs, words: tuple[str, ...]) -> None:
    jobs.kubectl("create" if words == ("replace",) else words[0], *words[1:], body=labelled(job(suspend=True)))
    rule = "cannot be changed: delete the Job, and create it again"
    with pytest.raises(KubeError) as refused:
        jobs.kubectl(*words, body=labelled(with_container(command=["date"])))
    assert str(refused.value).strip().endswith(f'The Job "hello" is invalid: {MAIN}.command: {rule}')


@pytest.mark.soak
def test_of_jobs_without_the_label_none_is_reviewed(jobs: Jobs, control_plane: Cluster) -> None:
    before = reviews(control_plane)

    def make(index: int) -> None:
        jobs.create(job(name=f"other-{index}", suspend=True))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(size("unlabelled"))))
    jobs.kubectl("label", "jobs", "--all", "other=label")
    assert len(jobs.names()) == size("unlabelled")
    assert reviews(control_plane) == before
    jobs.create(labelled(job(suspend=True)))
    assert reviews(control_plane) == before + 1


def test_without_the_webhook_only_labelled_jobs_wait_for_it(jobs: Jobs, control_plane: Cluster) -> None:
    hook = control_plane.api.get(_HOOK)["webhooks"][0]
    jobs.create(labelled(job(name="earlier", suspend=True)))

    def point_to(url: str) -> None:
        changed = {**hook, "clientConfig": {**hook["clientConfig"], "url": url}}
        control_plane.api.request("PATCH", _HOOK, {"webhooks": [changed]}, "application/merge-patch+json")

    point_to("https://127.0.0.1:9/mutate-jobs")
    try:
        until(lambda: not becomes_a_cluster(jobs))
        with pytest.raises(KubeError, match="failed calling webhook"):
            jobs.create(labelled(job(name="late")))
        jobs.create(job(name="other"))
        jobs.kubectl("label", "job", "other", "a=b")
        jobs.kubectl("label", "job", "earlier", "a=b")
        jobs.kubectl("patch", "job", "earlier", "--type=merge", "-p", '{"spec": {"suspend": false}}')
        jobs.kubectl("delete", "job", "earlier", "other", "--cascade=foreground")
    finally:
        point_to(hook["clientConfig"]["url"])
    until(lambda: becomes_a_cluster(jobs))


def test_a_guaranteed_pod_stays_one(jobs: Jobs) -> None:
    resources = {"limits": {"cpu": "1", "memory": "64Mi"}}
    jobs.create(labelled(with_container(resources=resources)))
    until(lambda: len(jobs.pods("hello")) == 2)
    assert {one["status"]["qosClass"] for one in jobs.pods("hello")} == {"Guaranteed"}
    assert {one["spec"]["hostname"] for one in jobs.pods("hello")} == {"hello-0", "hello-1"}


@pytest.mark.parametrize("place", ["pod", "container"])
def test_pods_satisfy_the_restricted_standard_if_the_users_containers_do(jobs: Jobs, place: str) -> None:
    standard = "pod-security.kubernetes.io/enforce=restricted"
    jobs.plane.kubectl("label", "namespace", jobs.namespace, standard)
    common = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    main = container(securityContext={**own, **(common if place == "container" else {})})
    jobs.create(labelled(job(pod={"containers": [main], "securityContext": common if place == "pod" else {}})))
    until(lambda: len(jobs.pods("hello")) == 2)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(document=arbitrary_jobs())
def test_the_api_server_takes_what_admission_makes_of_a_job_that_it_takes(always: Jobs, document: Object) -> None:
    always.create(document, "dryRun=All")
    assert id_of(always.create(labelled(document), "dryRun=All"))
