"""The admission webhook's decisions on creations, changes and sizes of MiniClusters. Pure.

The rules and messages are those of `minicluster.api.validate`. A change is refused only for problems that it
introduces, so that users can still change finalizers, labels and single fields of an object that was stored before a
rule existed.
Source: autoscaling/v1 Scale.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headrace.formats.config import keys as config_keys
from headrace.k8s.objects.kinds import MINICLUSTERS
from headrace.k8s.objects.problems import Problem, refusal
from headrace.k8s.runtime.admission.reviews import BadReview, Handler, Review, Verdict
from headrace.minicluster.api.fields import InvalidMiniCluster

from ..api.fields import API_VERSION, KIND, MiniCluster
from ..api.plan import given_config
from ..api.unapplied import without_effect
from ..api.validate import check

_NOT_FOUND = 404

Object = dict[str, Any]
# Returns the stored MiniCluster with a namespace and name; None if there is none.
Lookup = Callable[[str, str], Awaitable["Object | None"]]


def handler(lookup: Lookup) -> Handler:
    """The handler for reviews of MiniClusters and Scales; `lookup` returns a Scale's MiniCluster."""

    async def complete(review: Review) -> Review:
        if review.resource != MINICLUSTERS.plural or review.subresource not in ("", "scale"):
            about = f"{review.resource}/{review.subresource}"
            raise BadReview(f"asked about {about}: the webhook is for miniclusters and miniclusters/scale")
        if not review.new:
            raise BadReview("the review has no object")
        if not review.subresource:
            return review
        stored = await lookup(review.namespace, review.name)
        if stored is None:
            raise BadReview(f"no MiniCluster {review.namespace}/{review.name}", _NOT_FOUND)
        return scaled(review, stored)

    return Handler(judge, complete)


def scaled(review: Review, stored: Object) -> Review:
    """A review of a Scale as a review of `stored`, the MiniCluster that it resizes."""
    spec = review.new.get("spec")
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else 0
    new = {**stored, "spec": {**(stored.get("spec") or {}), "size": replicas}}
    return review._replace(subresource="", new=new, old=stored)


def judge(review: Review) -> Verdict:
    """The verdict on a review of a MiniCluster."""
    problems = new_problems(review.new, review.old)
    if problems:
        return Verdict(refusal=refusal(MINICLUSTERS, review.name, problems))
    return Verdict(warnings=tuple(warnings(review.new)))


def new_problems(new: Object, old: Object | None) -> list[Problem]:
    """The problems of `new` that `old` does not have."""
    metadata = new.get("metadata")
    if isinstance(metadata, dict) and metadata.get("deletionTimestamp"):
        # The object is being deleted, so this change removes finalizers. A refusal would prevent the deletion.
        return []
    if old is not None and old.get("spec") == new.get("spec"):
        return []
    known = set(_problems(old)) if old is not None else set()
    return [one for one in _problems(new) if one not in known]


def _problems(document: Object) -> list[Problem]:
    try:
        check({"apiVersion": API_VERSION, "kind": KIND, **_without_server_fields(document)})
    except InvalidMiniCluster as exc:
        return exc.problems
    return []


def _without_server_fields(document: Object) -> Object:
    # The API server has validated the metadata; our rules read only the name.
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return {"metadata": {"name": name}, "spec": document.get("spec")}


def warnings(document: Object) -> list[str]:
    """Warnings about a valid MiniCluster, or one that was valid under older rules; `kubectl` prints them."""
    try:
        cluster = check({"apiVersion": API_VERSION, "kind": KIND, **_without_server_fields(document)})
    except InvalidMiniCluster as exc:
        return [f"still wrong: {problem}" for problem in exc.problems]
    return [*without_effect(cluster), *_config_warnings(cluster)]


def _config_warnings(cluster: MiniCluster) -> list[str]:
    lines = config_keys.warnings(given_config(cluster.flux.broker_config))
    return [f"spec.flux.brokerConfig: {line}" for line in lines]
