"""Reviews of an admission webhook, and their answers, for any kind. Pure.

A handler judges a review: it refuses the object, admits it with warnings, or admits it changed, which the API server is
told as a JSON patch. Source: admission.k8s.io/v1 AdmissionReview; RFC 6902.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct

REVIEW_VERSION = "admission.k8s.io/v1"
# Characters of a warning beyond which the API server may cut it.
_WARNING_LIMIT = 256

Object = dict[str, Any]


class BadReview(ValueError):
    """A request that cannot be judged; `status` is the HTTP status of the answer."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Review(NamedTuple):
    """A request of the API server: the object to store (`new`, {} for a deletion) in place of `old` (None for a
    creation). `resource` is a plural name, `subresource` "" for the object itself.
    """

    uid: str
    operation: str
    resource: str
    subresource: str
    namespace: str
    name: str
    new: Object
    old: Object | None


class Verdict(Struct, frozen=True, kw_only=True):
    """`refusal` is the Status (metav1.Status) of a refusal, None to admit the object: as it is, or as `changed`."""

    refusal: Object | None = None
    warnings: tuple[str, ...] = ()
    changed: Object | None = None


async def _complete(review: Review) -> Review:
    return review


class Handler(NamedTuple):
    """What judges the reviews of one path. `judge` is pure; what it needs to know beyond the review is put into that by
    `complete`, which may ask the API server. Both raise BadReview.
    """

    judge: Callable[[Review], Verdict]
    complete: Callable[[Review], Awaitable[Review]] = _complete


def parse(body: Any) -> Review:
    """The request in an AdmissionReview. Raises BadReview."""
    request = body.get("request") if isinstance(body, dict) else None
    if not isinstance(request, dict) or body.get("apiVersion") != REVIEW_VERSION:
        raise BadReview(f"not an AdmissionReview of {REVIEW_VERSION}")
    new, old, resource = request.get("object") or {}, request.get("oldObject"), request.get("resource")
    if not isinstance(request.get("uid"), str) or not isinstance(new, dict) or not isinstance(old, (dict, type(None))):
        raise BadReview("the review has no uid, or an object that is not one")
    plural = resource.get("resource") if isinstance(resource, dict) else ""
    texts = (request.get(key) or "" for key in ("subResource", "namespace", "name"))
    subresource, namespace, name = map(str, texts)
    operation = str(request.get("operation") or "")
    return Review(request["uid"], operation, str(plural), subresource, namespace, name, new, old)


def response(review: Review, verdict: Verdict) -> Object:
    """The AdmissionReview that answers a review. Warnings that the API server may cut are cut here, with a sign."""
    answer: Object = {"uid": review.uid, "allowed": verdict.refusal is None}
    if verdict.refusal is not None:
        answer["status"] = verdict.refusal
    if verdict.warnings:
        answer["warnings"] = [_short(one) for one in verdict.warnings]
    patch = list(json_patch(review.new, verdict.changed)) if verdict.changed is not None else []
    if patch:
        answer["patchType"] = "JSONPatch"
        answer["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return {"apiVersion": REVIEW_VERSION, "kind": "AdmissionReview", "response": answer}


def json_patch(before: Object, after: Object, path: str = "") -> Iterator[Object]:
    """The JSON patch (RFC 6902) from one object to another. A list that differs is replaced as a whole; parts that both
    have in common are not looked at.
    """
    for key in before.keys() | after.keys():
        # RFC 6901, section 3: how a key is written in a path.
        at = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if key not in after:
            yield {"op": "remove", "path": at}
        elif key not in before:
            yield {"op": "add", "path": at, "value": after[key]}
        elif before[key] is after[key]:
            continue
        elif isinstance(before[key], dict) and isinstance(after[key], dict):
            yield from json_patch(before[key], after[key], at)
        elif before[key] != after[key]:
            yield {"op": "replace", "path": at, "value": after[key]}


def _short(text: str) -> str:
    return text if len(text) <= _WARNING_LIMIT else text[: _WARNING_LIMIT - 3] + "..."
