"""The metrics API of one instance: the paths, the list and the metrics of flux-metrics-api, and users' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.service.conftest import Instance, TestClient

from headrace.service import metrics_api
from headrace.service.metrics_api import DEFAULT_PATH, Options, create_app, read_user_file
from headrace.service.settings import SettingsError
from waiting import until

USERS = """
from flux.resource import resource_list

def cores_here(handle):
    return resource_list(handle).get().all.ncores / 8

def breaks(handle):
    raise RuntimeError("no such thing")

def is_no_number(handle):
    return "many"

def _helper(handle):
    return 1
"""
# Of flux-metrics-api.
THEIRS = [
    *("node_cores_free_count", "node_cores_up_count", "node_free_count", "node_up_count"),
    *(f"job_queue_state_{one}_count" for one in ("new", "depend", "priority", "sched", "run", "cleanup", "inactive")),
]


@pytest.fixture(scope="module")
def users_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("metrics") / "mine.py"
    path.write_text(USERS)
    return str(path)


def client(instance: Instance, **options: Any) -> Any:
    return TestClient(create_app(Options(uri=instance.uri, **options)), base_url="http://localhost")


def value(client: Any, metric: str) -> str:
    (item,) = client.get(f"{DEFAULT_PATH}/namespaces/flux-operator/metrics/{metric}").json()["items"]
    return str(item["value"])


def test_the_list_has_their_metrics_and_those_of_the_file(shared: Instance, users_file: str) -> None:
    asking = client(shared, user_metrics=read_user_file(users_file))
    found = asking.get(DEFAULT_PATH).json()
    names = {one["name"].removeprefix("services/") for one in found["resources"]}
    assert names == {*THEIRS, "demand_nodes", "idle_seconds", "cores_here", "breaks", "is_no_number"}
    assert (found["kind"], found["groupVersion"]) == ("APIResourceList", "custom.metrics.k8s.io/v1beta2")
    assert asking.get("/apis").json()["groups"][0]["name"] == "custom.metrics.k8s.io"
    assert "paths" in asking.get("/openapi/v2").json() and "paths" in asking.get(f"{DEFAULT_PATH}/schema").json()


def test_each_of_their_paths_has_a_value_about_the_service(shared: Instance) -> None:
    asking = client(shared, namespaces=("here", "there"), service_name="metrics")
    for where in (
        "/namespaces/here/metrics/node_up_count",
        "/namespaces/here/services/metrics/node_up_count",
        "/services/metrics/node_up_count",
    ):
        (item,) = asking.get(DEFAULT_PATH + where).json()["items"]
        assert (item["value"], item["metric"]["name"]) == ("1", "node_up_count")
        about = {"kind": "Service", "namespace": "here", "name": "metrics", "apiVersion": "v1"}
        assert item["describedObject"] == about
    (item,) = asking.get(f"{DEFAULT_PATH}/namespaces/there/services/metrics/node_up_count").json()["items"]
    assert item["describedObject"]["namespace"] == "there"


def test_another_namespace_and_an_unknown_metric_are_a_status(shared: Instance) -> None:
    asking = client(shared)
    for where in ("/namespaces/other/metrics/node_up_count", "/namespaces/flux-operator/metrics/nothing", "/x"):
        answer = asking.get(DEFAULT_PATH + where)
        found = answer.json()
        assert (answer.status_code, found["kind"], found["code"]) == (404, "Status", 404)
        assert found["reason"] == "NotFound" and found["message"]


def test_jobs_of_all_users_count(instance: Instance) -> None:
    asking = client(instance, cache=False)
    assert value(asking, "job_queue_state_run_count") == value(asking, "demand_nodes") == "0"
    ids = [
        instance.flux("submit", "-N1", "--exclusive", "sleep", "1000").strip(),
        # In the name of another user, as the owner may.
        instance.flux("python", "-c", _AS_ANOTHER).strip(),
    ]
    until(lambda: value(asking, "job_queue_state_run_count") == "1")
    until(lambda: value(asking, "job_queue_state_sched_count") == "1")
    assert value(asking, "demand_nodes") == "2" and value(asking, "node_free_count") == "0"
    instance.flux("cancel", *ids)
    until(lambda: value(asking, "job_queue_state_inactive_count") == "2")
    until(lambda: value(asking, "idle_seconds") != "0")


_AS_ANOTHER = """
import os
os.environ["FLUX_HANDLE_USERID"], os.environ["FLUX_HANDLE_ROLEMASK"] = "4242", "0x2"
import flux, flux.job
spec = flux.job.JobspecV1.from_command(["true"], num_nodes=1, exclusive=True)
print(flux.job.submit(flux.Flux(), spec))
"""


def test_numbers_of_the_file_are_quantities_and_its_faults_are_said(shared: Instance, users_file: str) -> None:
    asking = client(shared, user_metrics=read_user_file(users_file))
    cores = int(value(asking, "node_cores_up_count"))
    text = value(asking, "cores_here")
    assert (int(text[:-1]) / 1000 if text.endswith("m") else int(text)) == cores / 8
    for name, why in (("breaks", "RuntimeError: no such thing"), ("is_no_number", "TypeError: a metric is a number")):
        answer = asking.get(f"{DEFAULT_PATH}/namespaces/flux-operator/metrics/{name}")
        assert answer.status_code == 500 and why in answer.json()["message"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1\n", "has no function"),
        ("def f():\n    return 1\n", "f must take one argument"),
        ("def demand_nodes(handle):\n    return 1\n", "demand_nodes is a metric already"),
        ("import nothing_of_this_name\n", "ModuleNotFoundError"),
    ],
)
def test_a_file_that_makes_no_metrics_is_refused(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(SettingsError, match=why):
        read_user_file(str(tmp_path / "mine.py"))


def test_without_a_broker_the_answer_is_to_come_again() -> None:
    asking = TestClient(create_app(Options(uri="local:///nowhere/local")), base_url="http://localhost")
    answer = asking.get(f"{DEFAULT_PATH}/namespaces/flux-operator/metrics/node_up_count")
    assert (answer.status_code, answer.json()["reason"]) == (503, "ServiceUnavailable")


@pytest.mark.parametrize(
    ("mounted", "variable", "namespace"),
    [("team", "other", "team"), ("", "other", "other"), ("", "", "flux-operator")],
)
def test_the_namespace_is_the_pods(
    monkeypatch: pytest.MonkeyPatch, mounted: str, variable: str, namespace: str
) -> None:
    monkeypatch.setattr(metrics_api, "pod_namespace", lambda: mounted)
    monkeypatch.setenv("POD_NAMESPACE", variable)
    assert metrics_api.own_namespace() == namespace
