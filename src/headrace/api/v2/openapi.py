"""The OpenAPI document of `/v2`, which is kept beside this file. After a change of routes or fields:
`python -m headrace.api.v2.openapi`.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from headrace.api.v2.documentation import KEPT
from headrace.api.v2.routes import ROUTERS

_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "field", "errno"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, in the broker's words where it has refused"},
        "field": {"type": ["string", "null"], "description": "The field that is wrong"},
        "errno": {"type": ["integer", "null"], "description": "The broker's errno"},
        "errors": {"type": "array", "items": {"type": "object"}, "description": "Each field, where several are wrong"},
    },
}
_PROBLEM_RESPONSE = {
    "description": "Something is wrong (RFC 9457)",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def document() -> dict[str, Any]:
    """The document, from the routes."""
    app = FastAPI()
    for router in ROUTERS:
        app.include_router(router)
    found = get_openapi(title="Headrace", version="2", openapi_version="3.1.0", routes=app.routes)
    schemas = {"Problem": _PROBLEM}
    for path, operations in found["paths"].items():
        for operation in operations.values():
            _describe(path, operation)
    found["components"] = {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    found["security"] = [{"token": []}]
    return found


def _describe(path: str, operation: dict[str, Any]) -> None:
    """Write what FastAPI does not know, as responses are ready bytes."""
    kind = "text/event-stream" if path.endswith("/events") else "application/json"
    if path.endswith("/output"):
        kind = "application/octet-stream"
    status = min(operation["responses"])
    answer: dict[str, Any] = {"description": "As asked"}
    if status != "204":
        answer["content"] = {kind: {}}
    responses: dict[str, Any] = {status: answer, "default": _PROBLEM_RESPONSE}
    if operation.get("requestBody") and path.endswith(("/jobs", "/resubmit")):
        location = {"Location": {"schema": {"type": "string"}}}
        responses["201"] = {"description": "Submitted", "headers": location, "content": {kind: {}}}
    if path.endswith("/output"):
        responses["206"] = {"description": "A part", "content": {kind: {}}}
    if path.endswith("{jobid}/events"):
        responses["204"] = {"description": "There is nothing to come"}
    operation["responses"] = dict(sorted(responses.items()))


def text() -> str:
    return json.dumps(document(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    KEPT.write_text(text())
