"""A Job that is a cluster and is applied again: what admission wrote is put back, and no change is hidden."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flux_jobs.operator.arbitrary_jobs import jobs
from flux_jobs.read.samples import container, job
from headrace.flux_jobs.operator.policy import flux_job
from headrace.flux_jobs.operator.updates import WRITTEN, updated
from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE
from headrace.flux_jobs.read.field import InvalidForeign
from headrace.flux_jobs.read.job import read
from headrace.flux_jobs.read.options import Exit
from headrace.minicluster.operator.builders import Images

Document = dict[str, Any]

ID = "0123456789"
ID_LABEL = "flux-framework.org/headrace-cluster"
DEFAULT = Images()
IMAGES = st.builds(Images, st.just("local/view:1"), st.booleans())
POD = "spec.template.spec"
MAIN = f"{POD}.containers[0]"
RULE = "cannot be changed: delete the Job, and create it again"
# The keys by which Kubernetes merges the items of lists (core/v1, patchMergeKey). Other lists are replaced.
KEYS = {
    **dict.fromkeys(("containers", "initContainers", "env", "volumes"), "name"),
    **{"volumeMounts": "mountPath", "ports": "containerPort"},
}
# What Kubernetes may let change in the template of a suspended Job.
MUTABLE = {"resources", "nodeSelector", "tolerations", "schedulingGates", "nodeAffinity"}


def labelled(document: Document) -> Document:
    labels = document["metadata"].get("labels") or {}
    return {**document, "metadata": {**document["metadata"], "labels": {**labels, LABEL_KEY: LABEL_VALUE}}}


def cluster(document: Document, images: Images = DEFAULT) -> Document:
    """The Job of a file as the API server has it after admission."""
    made = flux_job(labelled(document), images, ID)
    template = made["spec"]["template"]
    labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-name": "hello", "controller-uid": "u"}
    return {
        **made,
        "spec": {
            **made["spec"],
            "selector": {"matchLabels": {"controller-uid": "u"}},
            "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
        },
    }


def merged(file: Any, stored: Any, key: str = "") -> Any:
    """What `kubectl apply` makes of a file that has no field less than before."""
    if isinstance(file, dict) and isinstance(stored, dict):
        return {**stored, **{name: merged(value, stored.get(name), name) for name, value in file.items()}}
    if key in KEYS and isinstance(file, list) and isinstance(stored, list):
        by = {one[KEYS[key]]: one for one in stored}
        ours = [one for one in stored if one[KEYS[key]] not in {item[KEYS[key]] for item in file}]
        return [*(merged(one, by.get(one[KEYS[key]])) for one in file), *ours]
    return file


def applied(document: Document, stored: Document, by_merge: bool) -> Document:
    file = labelled(document)
    return merged(file, stored) if by_merge else file


def refused(update: Document, stored: Document) -> dict[str, str]:
    with pytest.raises(InvalidForeign) as refusal:
        updated(update, stored)
    return {one.path: one.rule for one in refusal.value.problems}


def with_main(**fields: Any) -> Document:
    return job(pod={"containers": [container(**fields)]})


def with_pod(**fields: Any) -> Document:
    return job(pod={"containers": [container()], **fields})


both_ways = pytest.mark.parametrize("by_merge", [True, False], ids=["merge", "replacement"])


@given(jobs(), IMAGES, st.booleans())
def test_a_file_that_is_applied_again_changes_nothing(document: Document, images: Images, by_merge: bool) -> None:
    stored = cluster(document, images)
    update = applied(document, stored, by_merge)
    before = copy.deepcopy((update, stored))
    assert updated(update, stored) == stored
    assert (update, stored) == before, "nothing is changed in place"


@given(jobs(), IMAGES)
def test_an_update_with_all_that_the_job_has_stays_as_it_is(document: Document, images: Images) -> None:
    stored = cluster(document, images)
    update = {**stored, "spec": {**stored["spec"], "suspend": True, "parallelism": 3, "completions": 3}}
    assert updated(update, stored) == update


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inner = [leaf for key, one in pairs for leaf in leaves(one, (*path, key))]
    yield from inner or [path]


def with_other(value: Any, path: tuple[Any, ...], key: Any = "") -> Any:
    """A document in which the value at `path` is another one of its type; `key` is that of the document."""
    if path:
        copied = copy.copy(value)
        copied[path[0]] = with_other(value[path[0]], path[1:], path[0])
        return copied
    if isinstance(value, list):
        return [{KEYS[key]: "other"}] if key in KEYS else ["other"]
    if isinstance(value, dict):
        return {"other": "x"}
    return f"{value}x" if isinstance(value, str) else not value if isinstance(value, bool) else value + 1


@given(jobs(), IMAGES, st.booleans(), st.data())
def test_no_change_of_a_users_field_is_hidden(
    document: Document, images: Images, by_merge: bool, data: st.DataObject
) -> None:
    stored = cluster(document, images)
    pod = document["spec"]["template"]["spec"]
    path = data.draw(st.sampled_from(list(leaves(pod))))
    is_honest = read(document).options.exit is Exit.HONEST
    assume(not (path == ("restartPolicy",) and is_honest))
    changed = copy.deepcopy(document)
    changed["spec"]["template"]["spec"] = with_other(pod, path)
    update = applied(changed, stored, by_merge)
    if MUTABLE & set(path):
        assert updated(update, stored) != stored
    else:
        assert all(one.startswith(POD) and rule == RULE for one, rule in refused(update, stored).items())


def paths(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Where two documents differ; the first key below labels, the whole of a list."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            yield from paths(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif before != after:
        yield path


@given(jobs(), IMAGES)
def test_the_api_server_asks_about_all_that_admission_writes(document: Document, images: Images) -> None:
    known = tuple(re.sub(r"\[\?'(.*)'\]", r".\1", one).replace("?", "") for one in WRITTEN)
    made = flux_job(document, images, ID)
    others = (f"metadata.labels.{ID_LABEL}", "metadata.labels", "spec.template.metadata")
    for path in paths(document, made):
        assert path.startswith((*known, *others)) or any(one.startswith(f"{path}.") for one in known)


@both_ways
def test_the_words_of_a_command_may_move_to_its_arguments(by_merge: bool) -> None:
    stored = cluster(with_main(command=["sh", "-c", "true"]))
    assert updated(applied(with_main(command=["sh"], args=["-c", "true"]), stored, by_merge), stored) == stored


@both_ways
@pytest.mark.parametrize("args", [None, [], ["x"]])
def test_an_interactive_cluster_may_have_no_command(by_merge: bool, args: list[str] | None) -> None:
    main = {"name": "main", "image": "debian:12", **({} if args is None else {"args": args})}
    document = job("{interactive: true}", pod={"containers": [main]})
    stored = cluster(document)
    assert updated(applied(document, stored, by_merge), stored) == stored


@both_ways
@pytest.mark.parametrize(
    ("changed", "field"),
    [
        (with_main(command=["date"]), f"{MAIN}.command"),
        (with_main(command=["hostname", "-f"]), f"{MAIN}.command"),
        (with_main(args=["-f"]), f"{MAIN}.command"),
        (with_main(image="debian:13"), f"{MAIN}.image"),
        (with_main(env=[{"name": "A", "value": "2"}]), f"{MAIN}.env"),
        (with_main(env=[{"name": "HEADRACE_POD_NAMESPACE", "value": "x"}]), f"{MAIN}.env"),
        (with_pod(subdomain="mine"), f"{POD}.subdomain"),
        (with_pod(volumes=[{"name": "headrace-view", "emptyDir": {"medium": "Memory"}}]), f"{POD}.volumes"),
        (with_pod(terminationGracePeriodSeconds=5), f"{POD}.terminationGracePeriodSeconds"),
    ],
)
def test_a_refusal_names_the_field(changed: Document, field: str, by_merge: bool) -> None:
    stored = cluster(job())
    assert refused(applied(changed, stored, by_merge), stored) == {field: RULE}


def test_another_container_is_told_by_its_name_alone() -> None:
    stored = cluster(job())
    assert refused(applied(with_main(name="other", command=["x"]), stored, by_merge=False), stored) == {
        f"{MAIN}.name": RULE
    }


@both_ways
def test_what_kubernetes_may_change_passes(by_merge: bool) -> None:
    terms = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}
    node = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    given_: Document = {
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "schedulingGates": [{"name": "g"}],
        "affinity": node,
        "containers": [container(resources={"requests": {"cpu": "2", "nvidia.com/gpu": "1"}})],
    }
    changed = job(pod=given_, size=3, suspend=True, backoffLimit=9, ttlSecondsAfterFinished=1)
    changed["metadata"]["annotations"] = {"a": "b"}
    changed["spec"]["template"]["metadata"] = {"labels": {"c": "d"}, "annotations": {"e": "f"}}
    stored = cluster(job(suspend=True))
    found = updated(applied(changed, stored, by_merge), stored)
    assert found["metadata"]["annotations"] == {"a": "b"}
    spec, template = found["spec"], found["spec"]["template"]
    fields = ("parallelism", "completions", "backoffLimit", "ttlSecondsAfterFinished")
    assert [spec[key] for key in fields] == [3, 3, 9, 1]
    before = stored["spec"]["template"]
    assert template["metadata"] == {
        "labels": {**before["metadata"]["labels"], "c": "d"},
        "annotations": {"e": "f"},
    }
    pod = template["spec"]
    assert {key: pod[key] for key in ("nodeSelector", "tolerations", "schedulingGates")} == {
        key: given_[key] for key in ("nodeSelector", "tolerations", "schedulingGates")
    }
    assert pod["affinity"] == {**before["spec"]["affinity"], **node}
    view, main = pod["initContainers"][0], pod["containers"][0]
    assert main == {**before["spec"]["containers"][0], "resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}}}
    assert view == {**before["spec"]["initContainers"][0], "resources": {"requests": {"cpu": "2"}}}


def test_the_ids_label_stays_on_job_and_pods() -> None:
    stored = cluster(job())
    update = copy.deepcopy(stored)
    update["metadata"]["labels"][ID_LABEL] = update["spec"]["template"]["metadata"]["labels"][ID_LABEL] = "f" * 10
    assert updated(update, stored) == stored
    del update["metadata"]["labels"], update["spec"]["template"]["metadata"]["labels"]
    assert updated(update, stored) == stored


OWN = {
    "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "X", "status": "True"}]}]},
    "successPolicy": {"rules": [{"succeededCount": 2}]},
}


@pytest.mark.parametrize("key", ["podFailurePolicy", "successPolicy"])
def test_policies_of_the_users_are_not_put_back(key: str) -> None:
    stored = cluster(job(**{key: OWN[key]}))
    gone = copy.deepcopy(stored)
    del gone["spec"][key]
    assert key not in updated(gone, stored)["spec"], "Kubernetes refuses it by this name"
    assert (
        updated(applied(job(**{key: OWN[key]}), cluster(job()), by_merge=False), cluster(job()))["spec"][key]
        == OWN[key]
    )


def test_policies_are_kept_with_exit_keep() -> None:
    document = job("{exit: keep}", podReplacementPolicy="TerminatingOrFailed")
    stored = cluster(document)
    update = applied(
        {**document, "spec": {**document["spec"], "podReplacementPolicy": "Failed"}}, stored, by_merge=False
    )
    assert updated(update, stored)["spec"]["podReplacementPolicy"] == "Failed"
    later = job("{exit: keep}", pod={"containers": [container()], "restartPolicy": "OnFailure"})
    assert refused(applied(later, stored, by_merge=True), stored) == {f"{POD}.restartPolicy": RULE}


def test_a_selector_of_the_users_is_not_put_back() -> None:
    document = job(manualSelector=True, selector={"matchLabels": {"a": "b"}})
    document["spec"]["template"]["metadata"] = {"labels": {"a": "b", "job-name": "mine"}}
    stored = flux_job(labelled(document), Images(), ID)
    assert updated(applied(document, stored, by_merge=False), stored) == stored
    del document["spec"]["selector"], document["spec"]["template"]["metadata"]
    spec = updated(applied(document, stored, by_merge=False), stored)["spec"]
    assert "selector" not in spec and spec["template"]["metadata"]["labels"] == {ID_LABEL: ID}
