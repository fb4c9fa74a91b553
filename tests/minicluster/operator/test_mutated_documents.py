"""Spoiled MiniCluster documents: an error each time or a valid cluster, at admission and in the operator alike, never a
traceback, and nothing made of one that is wrong."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from arbitrary import DOCUMENTS
from mutation import mutated

import seeds
from headrace.k8s.runtime.steps import Create
from headrace.minicluster.api.fields import InvalidMiniCluster, MiniCluster
from headrace.minicluster.api.validate import check
from headrace.minicluster.operator import admission
from headrace.minicluster.operator.actions import MakeSecret
from headrace.minicluster.operator.builders import Images, desired, view_image
from headrace.minicluster.operator.core.observed import Observed
from headrace.minicluster.operator.core.reconcile import Settings, reconcile
from minicluster.api.broken import everything
from minicluster.api.specs import document
from sizes import size

NOW = 1_700_000_000.0
# Recorded ones, and specifications in which each of our own fields occurs.
ORIGINALS = [*DOCUMENTS, *(document(spec) for spec, _ in everything())]


def build(cluster: MiniCluster, uid: str, pods: int, known_hosts: str) -> list[dict[str, Any]]:
    return desired(cluster, uid=uid, images=Images(), keys=None, size=pods, known_hosts=known_hosts)


SETTINGS = Settings(build=build, replaced_image=lambda cluster: view_image(cluster, Images())[1])


def valid(spoiled: Any) -> bool:
    try:
        check(spoiled)
    except InvalidMiniCluster as exc:
        assert exc.problems and all(one.rule for one in exc.problems)
        return False
    return True


def stored(spoiled: dict[str, Any]) -> dict[str, Any]:
    """The object that an API server without any schema would have stored: its metadata is the API server's own."""
    name = spoiled["metadata"].get("name") if isinstance(spoiled.get("metadata"), dict) else None
    metadata = {"name": name if isinstance(name, str) and name else "sample", "namespace": "n", "uid": "u"}
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster"}
    return {**head, "metadata": {**metadata, "generation": 1, "resourceVersion": "1"}, "spec": spoiled.get("spec")}


@pytest.mark.soak
def test_a_spoiled_document_is_an_error_or_a_valid_cluster() -> None:
    dice = random.Random(seeds.seed())
    counts = {True: 0, False: 0}
    for _ in range(size("documents")):
        spoiled = mutated(dice, dice.choice(ORIGINALS))
        good = valid(spoiled)
        counts[good] += 1
        if not isinstance(spoiled, dict):
            continue
        body = stored(copy.deepcopy(spoiled))
        good = valid(
            {key: value for key, value in body.items() if key != "metadata"}
            | {"metadata": {"name": body["metadata"]["name"]}}
        )
        assert (admission.new_problems(body, None) == []) is good
        if good:
            admission.warnings(body)
        if isinstance(body["spec"], dict):
            look(body, good)
    print(counts)
    assert min(counts.values()) > size("documents") / 200, "both kinds occur"


def look(body: dict[str, Any], good: bool) -> None:
    """The operator's first look at what is stored: all objects of a valid one, none and a status of another."""
    foreign = body["spec"].get("managedBy") not in (None, "", "flux-framework.org/headrace-operator")
    actions = reconcile(Observed(cluster=body), SETTINGS, NOW)
    assert body == stored(body), "what was observed is not changed"
    if foreign:
        assert actions.steps == ()
        return
    assert actions.status is not None
    if not good:
        assert actions.steps == () and actions.status["phase"] == "Invalid" and actions.status["reason"]
        return
    assert actions.status["phase"] != "Invalid"
    made = [type(step) for step in actions.steps if isinstance(step, (Create, MakeSecret))]
    assert MakeSecret in made and len(made) >= 4
