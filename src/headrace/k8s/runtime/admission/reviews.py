"""Reviews of an admission webhook, and their responses, for any kind. Pure.

A handler judges a review: it rejects the object, admits it with warnings, or changes it. The API server receives a
change as a JSON patch. Source: admission.k8s.io/v1 AdmissionReview; RFC 6902.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct

REVIEW_VERSION = "admission.k8s.io/v1"
# Characters of a warning; the API server may truncate longer ones.
_WARNING_LIMIT = 256

Object = dict[str, Any]


class BadReview(ValueError):
    """A request that is not a valid review; `status` is the HTTP status of the response."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Review(NamedTuple):
    """A request of the API server to create, replace or delete an object.

    `new` is the object to store, {} for a deletion. `old` is the stored object, None for a creation. `resource` is a
    plural name; `subresource` is "" for the object itself.
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
    """The result of a review.

    `refusal` is the Status (metav1.Status) of a rejection; None admits the object, as it is or as `changed`.
    """

    refusal: Object | None = None
    warnings: tuple[str, ...] = ()
    changed: Object | None = None


async def _complete(review: Review) -> Review:
    return review


class Handler(NamedTuple):
    """Judges the reviews of one path.

    `judge` is pure. `complete` adds the data to a review that `judge` needs, and may read from the API server. Both
    raise BadReview.
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
        raise BadReview("the review has no uid, or its object is not a mapping")
    plural = resource.get("resource") if isinstance(resource, dict) else ""
    texts = (request.get(key) or "" for key in ("subResource", "namespace", "name"))
    subresource, namespace, name = map(str, texts)
    operation = str(request.get("operation") or "")
    return Review(request["uid"], operation, str(plural), subresource, namespace, name, new, old)


def response(review: Review, verdict: Verdict) -> Object:
    """The AdmissionReview with the response to a review.

    Warnings that the API server may truncate are truncated here, with an ellipsis.
    """
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
    """The JSON patch (RFC 6902) from one object to another.

    A list that differs is replaced as a whole. Parts that are the same Python object are not compared.
    """
    for key in before.keys() | after.keys():
        # RFC 6901, section 3: escapes for `~` and `/` in a path.
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
