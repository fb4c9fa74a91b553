"""`headrace operator run`: what its options give the operator, and what it says without a cluster."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from headrace.cli.main import headrace
from headrace.k8s.runtime.program import Serving
from headrace.minicluster.operator.builders import Images
from headrace.minicluster.operator.controller import Options
from headrace.programs.operator import serve as serving_module
from headrace.programs.operator.install import Install
from headrace.programs.operator.package import PACKAGE


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Serving, Options]]:
    found: list[tuple[Serving, Options]] = []

    async def record(serving: Serving, options: Options) -> int:
        found.append((serving, options))
        return 0

    monkeypatch.setattr(serving_module, "serve", record)
    return found


def run(served: Any, line: str) -> tuple[Serving, Options]:
    assert headrace(shlex.split(line)[1:]) == 0
    return served.pop()  # type: ignore[no-any-return]


def test_it_looks_after_all_namespaces_unless_one_is_named(served: Any) -> None:
    assert run(served, "headrace operator run")[1] == Options()
    assert run(served, "headrace operator run --all-namespaces")[1] == Options()
    assert run(served, "headrace operator run --namespace team")[1].namespaces == ("team",)
    assert headrace(["operator", "run", "--namespace", "team", "--all-namespaces"]) == 2


def test_the_view_and_the_domain(served: Any) -> None:
    options = run(served, "headrace operator run --view-image local/view:1 --view-as-volume --cluster-domain k8s.lan")[
        1
    ]
    assert options.images == Images(view="local/view:1", as_volume=True)
    assert options.cluster_domain == "k8s.lan"


def test_the_namespace_of_the_flux_operator(served: Any) -> None:
    assert run(served, "headrace operator run --namespace team")[1].flux_operator_namespace == "operator-system"
    line = "headrace operator run --namespace team --flux-operator-namespace"
    assert run(served, f"{line} flux")[1].flux_operator_namespace == "flux"
    assert run(served, f"{line} ''")[1].flux_operator_namespace == ""


def test_addresses_and_the_lease(served: Any) -> None:
    serving = run(served, "headrace operator run --metrics-bind :1 --health-bind :2 --lease-namespace ops")[0]
    assert (serving.metrics_bind, serving.health_bind) == (":1", ":2")
    assert (serving.lease_namespace, serving.leader_elect) == ("ops", True)
    assert run(served, "headrace operator run --leader-elect")[0].leader_elect is True
    assert run(served, "headrace operator run --no-leader-elect")[0].leader_elect is False


def test_the_webhook_is_off_unless_it_is_given_a_place(served: Any) -> None:
    assert run(served, "headrace operator run")[0].webhook_bind == ""
    assert run(served, "headrace operator run --webhook-bind :9443 --no-webhook")[0].webhook_bind == ""
    serving = run(served, "headrace operator run --webhook-bind :9443 --webhook-certificate /certificate")[0]
    assert (serving.webhook_bind, serving.webhook_certificate) == (":9443", "/certificate")
    serving = run(served, "headrace operator run --webhook-bind 192.0.2.1:1 --webhook-address 192.0.2.1")[0]
    assert serving.webhook_address == "192.0.2.1"


def test_metrics_are_served_by_the_server_of_the_webhook(served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(served, "headrace operator run --webhook-bind :9443 --metrics-api")[1].metrics_api is True
    assert run(served, "headrace operator run --webhook-bind :9443")[1].metrics_api is False
    for words in (["run", "--metrics-api"], ["manifests", "--no-webhook", "--metrics-api"]):
        assert headrace(["operator", *words]) == 1
        assert "--metrics-api needs the webhook" in capsys.readouterr().err


def printed(capsys: pytest.CaptureFixture[str], line: str) -> list[Any]:
    assert headrace(shlex.split(line)[1:]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_what_installs_the_operator_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "headrace operator manifests") == PACKAGE.objects(Install())
    line = (
        "headrace operator manifests --namespace ops --image a:1 --view-image b:1 --watch-namespace team,more "
        "--replicas 2 --view-as-volume --network-policy team --cluster-domain k8s.lan "
        "--flux-operator-namespace operator-system"
    )
    given = {"namespace": "ops", "image": "a:1", "view_image": "b:1", "watched": ("team", "more"), "replicas": 2}
    given.update(cluster_domain="k8s.lan", flux_operator_namespace="operator-system")
    chosen = Install(**given, view_as_volume=True, network_policies=("team",))
    assert printed(capsys, line) == PACKAGE.objects(chosen)
    assert printed(capsys, "headrace operator manifests --no-webhook") == PACKAGE.objects(Install(webhook=False))
    assert printed(capsys, "headrace operator manifests --cert-manager") == PACKAGE.objects(Install(cert_manager=True))
    assert printed(capsys, "headrace operator manifests --trainer") == PACKAGE.objects(Install(trainer=True))
    assert printed(capsys, "headrace operator manifests --metrics-api") == PACKAGE.objects(Install(metrics_api=True))


@pytest.mark.parametrize("program", ["operator", "fluxqueue"])
@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--replicas 0", "argument --replicas: '0' is not a number of replicas (1 or more)"),
        ("--replicas -1", "argument --replicas: '-1' is not a number"),
        ("-n Bad_Name", "argument -n/--namespace: 'Bad_Name' is not a valid name of a namespace"),
        ("-n -a", "-n/--namespace"),
    ],
)
def test_what_cannot_be_installed_is_refused_by_its_option(
    capsys: pytest.CaptureFixture[str], program: str, words: str, why: str
) -> None:
    assert headrace([program, "manifests", *words.split()]) == 2
    assert why in capsys.readouterr().err


def test_namespaces_of_a_list_are_names(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--watch-namespace", "--network-policy"):
        assert headrace(["operator", "manifests", option, "team,a.b"]) == 2
        assert f"argument {option}: 'a.b' is not a valid name of a namespace" in capsys.readouterr().err


def test_a_kubeconfig_and_its_context(served: Any) -> None:
    line = "headrace operator run --kubeconfig file --context other --log-format text --log-level debug"
    serving = run(served, line)[0]
    assert (serving.kubeconfig, serving.context) == ("file", "other")


def test_without_a_cluster_it_says_what_it_looked_for(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["operator", "run", "--kubeconfig", f"{tmp_path}/none"]) == 1
    assert f"no kubeconfig: {tmp_path}/none does not exist" in capsys.readouterr().err


def test_manifests_of_a_development_version_say_how_its_images_are_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*options: str) -> str:
        assert headrace(["operator", "manifests", *options]) == 0
        return capsys.readouterr().err

    for released in (False, True):
        monkeypatch.setattr("headrace.k8s.packaging.images.is_release", lambda released=released: released)
        expected = "" if released else "--image and --view-image\n"
        assert said().endswith(expected) and bool(said()) != released
        assert said("--image", "a/b:1").endswith("" if released else "name them with --view-image\n")
        assert said("--image", "a/b:1", "--view-image", "a/c:1") == ""


def test_the_options_of_uninstall(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        "headrace operator uninstall --dry-run --timeout 1m --json --delete-miniclusters --context other",
        "headrace fluxqueue uninstall --dry-run --timeout 1m --json --delete-queues --context other",
    ):
        assert headrace([*shlex.split(line)[1:], "--kubeconfig", f"{tmp_path}/none"]) == 1
        assert f"no kubeconfig: {tmp_path}/none does not exist" in capsys.readouterr().err
    for line in ("headrace operator uninstall --kubeconfig x", "headrace fluxqueue uninstall --kubeconfig x"):
        assert headrace([*shlex.split(line)[1:], "--timeout", "soon"]) == 1
        assert "--timeout: invalid duration 'soon'" in capsys.readouterr().err
