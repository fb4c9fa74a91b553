"""The admission webhook's responses: which creations, changes and sizes of MiniClusters are refused, and why. Pure.

The rules and messages are those of `minicluster.validate`. An object that was stored before a rule existed can still be
changed: only problems that a change introduces are refused, so that finalizers, labels and single fields can be
corrected. Source: admission.k8s.io/v1 AdmissionReview, autoscaling/v1 Scale.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..config import keys as config_keys
from ..minicluster.fields import API_VERSION, KIND, MiniCluster
from ..minicluster.plan import given_config
from ..minicluster.problems import InvalidMiniCluster, Problem
from ..minicluster.unapplied import without_effect
from ..minicluster.validate import check

REVIEW_VERSION = "admission.k8s.io/v1"
_WARNING_LIMIT = 256  # characters of a warning beyond which the API server may cut it
_INVALID = 422
_BAD_REQUEST = 400

Object = dict[str, Any]


class BadReview(ValueError):
    """A request body that is not an AdmissionReview of MiniClusters."""


class Review(NamedTuple):
    """A request of the API server: the object to store (`new`) in place of `old` (None for a creation)."""

    uid: str
    namespace: str
    name: str
    scale: bool
    new: Object
    old: Object | None


def parse(body: Any) -> Review:
    """The request in an AdmissionReview. Raises BadReview."""
    request = body.get("request") if isinstance(body, dict) else None
    if not isinstance(request, dict) or body.get("apiVersion") != REVIEW_VERSION:
        raise BadReview(f"not an AdmissionReview of {REVIEW_VERSION}")
    new, old = request.get("object"), request.get("oldObject")
    subresource = request.get("subResource") or ""
    resource = request.get("resource")
    kind = resource.get("resource") if isinstance(resource, dict) else None
    if kind != "miniclusters" or subresource not in ("", "scale"):
        raise BadReview(f"asked about {kind}/{subresource}: the webhook is for miniclusters and miniclusters/scale")
    if not isinstance(request.get("uid"), str) or not isinstance(new, dict) or not isinstance(old, (dict, type(None))):
        raise BadReview("the review has no uid or no object")
    namespace, name = (str(request.get(key) or "") for key in ("namespace", "name"))
    return Review(request["uid"], namespace, name, subresource == "scale", new, old)


def scaled(review: Review, stored: Object) -> Review:
    """A review of a Scale as a review of `stored`, the MiniCluster that it resizes."""
    spec = review.new.get("spec")
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else 0
    new = {**stored, "spec": {**(stored.get("spec") or {}), "size": replicas}}
    return review._replace(scale=False, new=new, old=stored)


def answer(review: Review) -> Object:
    """The AdmissionReview that responds to a review of a MiniCluster."""
    problems = new_problems(review.new, review.old)
    if problems:
        return _response(review.uid, allowed=False, status=_refusal(review, problems))
    return _response(review.uid, allowed=True, warnings=warnings(review.new))


def new_problems(new: Object, old: Object | None) -> list[Problem]:
    """The problems of `new` that `old` does not have."""
    metadata = new.get("metadata")
    if isinstance(metadata, dict) and metadata.get("deletionTimestamp"):
        # A deleted object changes only when finalizers are removed; a refusal would prevent its end.
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
        return [_short(f"still wrong: {problem}") for problem in exc.problems]
    return [_short(one) for one in (*without_effect(cluster), *_config_warnings(cluster))]


def _config_warnings(cluster: MiniCluster) -> list[str]:
    lines = config_keys.warnings(given_config(cluster.flux.broker_config))
    return [f"spec.flux.brokerConfig: {line}" for line in lines]


def _short(text: str) -> str:
    return text if len(text) <= _WARNING_LIMIT else text[: _WARNING_LIMIT - 3] + "..."


def _refusal(review: Review, problems: list[Problem]) -> Object:
    causes = [{"reason": "FieldValueInvalid", "field": one.path, "message": one.rule} for one in problems]
    return {
        "code": _INVALID,
        "reason": "Invalid",
        "message": "; ".join(str(one) for one in problems),
        "details": {"name": review.name, "kind": KIND, "group": API_VERSION.partition("/")[0], "causes": causes},
    }


def _response(uid: str, **fields: Any) -> Object:
    response = {"uid": uid, **{key: value for key, value in fields.items() if value not in ([], None)}}
    return {"apiVersion": REVIEW_VERSION, "kind": "AdmissionReview", "response": response}
