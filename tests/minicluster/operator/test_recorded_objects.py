"""Our objects of each recorded MiniCluster are those of the Flux Operator, but for a table of differences.

The recordings (`tests/data/minicluster`) come from the Flux Operator on a real API server of Kubernetes 1.34, which
fills in defaults; a ConfigMap has its keys, without the scripts. Cases beside them are in `derived_cases`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from derived_cases import DERIVED, case_of, document_of
from differences import ABSENT, Difference, differences, matches, table, without

from headrace.minicluster.api.fields import InvalidMiniCluster, View
from headrace.minicluster.api.validate import check
from headrace.minicluster.operator.builders import Images, desired

DATA = Path(__file__).parents[2] / "data/minicluster"
OUR_VIEW = "view:1"
DOCUMENTS = {
    case["name"]: case["document"]
    for case in (json.loads(line) for line in (DATA / "cases.jsonl").read_text(encoding="utf-8").splitlines())
}
CASES = [json.loads(line) for line in (DATA / "objects.jsonl").read_text(encoding="utf-8").splitlines()]
# Refused by validation, with a reason in tests/minicluster/test_recorded_miniclusters.py.
REFUSED = {"variant-tasks-negative", "variant-curve-cert"}
RECORDED = [case for case in CASES if case["name"] not in REFUSED]
DOCUMENTS.update({one.name: document_of(one, DOCUMENTS) for one in DERIVED})
TAKEN = [*RECORDED, *(case_of(one, {case["name"]: case for case in CASES}) for one in DERIVED)]

_CONTAINER = (
    (".lifecycle", {}),
    (".resources", {}),
    (".securityContext", {}),
    (".terminationMessagePath", "/dev/termination-log"),
    (".terminationMessagePolicy", "File"),
    (".env[].valueFrom.fieldRef.apiVersion", "v1"),
    (".readinessProbe.httpGet.scheme", "HTTP"),
    (".readinessProbe.successThreshold", 1),
)
_POD = (
    (".dnsPolicy", "ClusterFirst"),
    (".schedulerName", "default-scheduler"),
    (".securityContext", {}),
    (".terminationGracePeriodSeconds", 30),
    (".volumes[].configMap.defaultMode", 420),
    (".volumes[].secret.defaultMode", 420),
    *((f".{kind}[]{path}", value) for kind in ("containers", "initContainers") for path, value in _CONTAINER),
)
NOT_READY = [
    {"effect": "NoExecute", "key": f"node.kubernetes.io/{key}", "operator": "Exists", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]
_JOB_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
# What the API server of Kubernetes 1.34 and its admission fill in. UID and ASSIGNED stand for values in recordings.
FILLED_IN = (
    *((f"Job.spec.template.spec{path}", value) for path, value in _POD),
    *((f"Pod.spec{path}", value) for path, value in _POD),
    *((f"Job.metadata.labels.{label}", "UID") for label in _JOB_LABELS),
    *((f"Job.spec.template.metadata.labels.{label}", "UID") for label in _JOB_LABELS),
    ("Job.spec.manualSelector", False),
    ("Job.spec.selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": "UID"}}),
    ("Pod.spec.enableServiceLinks", True),
    ("Pod.spec.preemptionPolicy", "PreemptLowerPriority"),
    ("Pod.spec.priority", 0),
    ("Pod.spec.serviceAccount", "default"),
    ("Pod.spec.serviceAccountName", "default"),
    ("Pod.spec.tolerations", NOT_READY),
    ("Service.spec.clusterIP", "ASSIGNED"),
    ("Service.spec.clusterIPs", ["ASSIGNED"]),
    ("Service.spec.clusterIPs", ["None"]),
    ("Service.spec.internalTrafficPolicy", "Cluster"),
    ("Service.spec.ipFamilies", ["IPv4"]),
    ("Service.spec.ipFamilyPolicy", "SingleStack"),
    ("Service.spec.sessionAffinity", "None"),
    ("Service.spec.type", "ClusterIP"),
)
DEFAULTS = {(path, json.dumps(value, sort_keys=True)) for path, value in FILLED_IN}
ROWS = table()


def recorded(case: dict[str, Any]) -> dict[str, Any]:
    """The Flux Operator's objects of a case by KIND/NAME, without what the API server fills in."""
    found = {}
    for one in case["objects"]:
        one = without(one, DEFAULTS, one["kind"])
        if one["kind"] == "Job":
            drop_what_the_job_controller_copies(one)
        found[f"{one['kind']}/{one['metadata']['name']}"] = one
    return found


def drop_what_the_job_controller_copies(job: dict[str, Any]) -> None:
    """A Job's template gets the Job's name as a label, and a pod the old field of its service account."""
    labels, spec = job["spec"]["template"]["metadata"]["labels"], job["spec"]["template"]["spec"]
    for label in ("job-name", "batch.kubernetes.io/job-name"):
        assert labels.pop(label) == job["metadata"]["name"]
    assert spec.pop("serviceAccount", None) == spec.get("serviceAccountName")


def ours(case: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Our objects of a case by KIND/NAME, as they are recorded: a ConfigMap's keys, an owner without its UID."""
    cluster = msgspec.structs.replace(check(DOCUMENTS[case["name"]]), namespace=case["namespace"])
    found = {}
    for one in desired(cluster, uid="UID", images=Images(view=OUR_VIEW), keys=None, **options):
        del one["metadata"]["ownerReferences"][0]["uid"]
        if one["kind"] == "Job":
            _put_sidecars_among_containers(one["spec"]["template"]["spec"])
        if one["kind"] == "ConfigMap":
            one["data"] = dict.fromkeys(one["data"], True)
        found[f"{one['kind']}/{one['metadata']['name']}"] = one
    return found


def _put_sidecars_among_containers(pod: dict[str, Any]) -> None:
    """Where the Flux Operator has them: the table has a row of theirs about `restartPolicy`."""
    beside = [one for one in pod.get("initContainers", ()) if "restartPolicy" in one]
    pod["containers"] += beside
    left = [one for one in pod.pop("initContainers", ()) if one not in beside]
    if left:
        pod["initContainers"] = left


def names_of(case: dict[str, Any]) -> dict[str, str]:
    """What the words in braces of the table stand for in a case."""
    cluster = check(DOCUMENTS[case["name"]])
    view = cluster.flux.container or View()
    names = {"name": cluster.name, "view": view.name, "view_image": view.image, "our_view": OUR_VIEW}
    for volume in cluster.runner.volumes.values():
        if volume.empty_dir and volume.path:
            names["empty_dir_path"] = volume.path
    if view.disable:
        names["unused_view"] = view.name
    before: set[str] = set()
    for one in cluster.spec.containers:
        own = {volume.path for volume in one.volumes.values()}
        if before - own:
            names["others_path"] = min(before - own)
        before |= own
    # A row about a value that the file does not give is about nothing.
    nothing = dict.fromkeys(("empty_dir_path", "unused_view", "others_path"), "\n")
    return {**nothing, "pull_secret": view.image_pull_secret or "\n", **names}


def found_in(case: dict[str, Any]) -> list[tuple[Difference, list[int]]]:
    """The differences of a case, each with the numbers of the table's rows that are about it."""
    names, document = names_of(case), DOCUMENTS[case["name"]]

    def rows_of(one: Difference) -> list[int]:
        return [index for index, row in enumerate(ROWS) if matches(row, one, names, document)]

    left, right = recorded(case), ours(case)
    found = []
    for name in sorted(left.keys() | right.keys()):
        kind = name.split("/")[0]
        found += differences(left.get(name, ABSENT), right.get(name, ABSENT), kind, rows_of)
    return [(one, rows_of(one)) for one in found]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in TAKEN])
def test_our_objects_are_the_flux_operators_but_for_the_table(case: dict[str, Any]) -> None:
    unexpected = [one for one, rows in found_in(case) if not rows]
    assert unexpected == []


def test_every_row_of_the_table_is_about_a_recorded_difference() -> None:
    used = {index for case in TAKEN for _, rows in found_in(case) for index in rows}
    assert [row.path for index, row in enumerate(ROWS) if index not in used] == []


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_left_out_is_refused(name: str) -> None:
    with pytest.raises(InvalidMiniCluster):
        check(DOCUMENTS[name])


def test_the_names_of_objects_are_the_flux_operators() -> None:
    for case in TAKEN:
        assert ours(case).keys() == recorded(case).keys()
