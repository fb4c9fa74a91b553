"""A program's description becomes an install file, a kustomize base and a chart with the same objects."""

from __future__ import annotations

from typing import Any

import yaml
from msgspec import Struct

from headrace.k8s.objects.kinds import JOBS, MUTATING, PODS
from headrace.k8s.packaging.component import READ, Component, Part, rule, webhook_rule
from headrace.k8s.packaging.helm_templates import SWITCH, Placeholders, Value
from headrace.k8s.packaging.package import File, Package

Object = dict[str, Any]


class Install(Struct, frozen=True, kw_only=True):
    namespace: str = "sweeper-system"
    strict: bool = False


def component(install: Install) -> Component:
    return Component("sweeper", install.namespace)


def access(install: Install) -> list[Object]:
    sweeper = component(install)
    return [sweeper.account(), *sweeper.granted("sweeper", "", [rule([PODS, JOBS], READ), rule([JOBS], ["delete"])])]


def workload(install: Install) -> list[Object]:
    return [component(install).deployment("sweeper", "sweeper:1", {}, {"health": 8081}, [Part(["sweep"])], 1)]


def webhook(install: Install) -> list[Object]:
    sweeper = component(install)
    hook = {"name": "sweeper.example.org", "clientConfig": sweeper.webhook_client("sweeper", "/judge")}
    reviewed = {**hook, "rules": [webhook_rule(JOBS, ["CREATE"])]}
    return [sweeper.webhook_configuration(MUTATING, "sweeper", reviewed)] if install.strict else []


PACKAGE = Package(
    name="sweeper",
    description="Sweeps Jobs",
    source="this test",
    defaults=Install(),
    files=(
        File("namespace", lambda install: [component(install).namespace_object()], in_chart=False),
        File("rbac", access),
        File("sweeper", workload),
        File("webhook", webhook, value="$.Values.strict"),
    ),
    values=(Value("strict", False, SWITCH, "Judge Jobs."),),
    templated=Install(namespace="<namespace>", strict=True),
    placeholders=Placeholders({"<namespace>": "{{ $.Release.Namespace }}"}, {}, {}),
)


def test_the_install_file_has_the_objects_of_the_choices() -> None:
    for install in (Install(), Install(strict=True, namespace="other")):
        found = list(yaml.safe_load_all(PACKAGE.install_file(install)))
        assert found == PACKAGE.objects(install)
        assert ("MutatingWebhookConfiguration" in {one["kind"] for one in found}) is install.strict
        assert {one["metadata"]["labels"]["app.kubernetes.io/name"] for one in found} == {"sweeper"}


def test_the_base_leaves_out_what_is_off_by_default() -> None:
    files = PACKAGE.kustomize_base()
    listed = yaml.safe_load(files["kustomization.yaml"])["resources"]
    assert listed == ["namespace.yaml", "rbac.yaml", "sweeper.yaml"]
    assert all(text.startswith("# Made by `make install-files` from this test.\n") for text in files.values())


def test_the_chart_has_a_template_for_each_file_but_the_namespace() -> None:
    chart = PACKAGE.chart()
    templates = {path for path in chart if path.startswith("templates/")}
    assert templates == {f"templates/{name}.yaml" for name in ("rbac", "sweeper", "webhook")}
    assert 'namespace: "{{ $.Release.Namespace }}"' in chart["templates/sweeper.yaml"]
    assert "{{- if $.Values.strict }}\n---\n" in chart["templates/webhook.yaml"]
    assert yaml.safe_load(chart["values.yaml"]) == {"strict": False}


def test_a_rule_has_the_groups_of_its_kinds_and_their_parts() -> None:
    assert rule([PODS, JOBS], ["get"], parts=["", "/status"]) == {
        "apiGroups": ["", "batch"],
        "resources": ["pods", "pods/status", "jobs", "jobs/status"],
        "verbs": ["get"],
    }
    assert rule([JOBS], ["get"], ["one"])["resourceNames"] == ["one"]
