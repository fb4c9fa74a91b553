"""The OpenAPI document of `/v2`, which is stored beside this file.

After a change of routes or fields, run `python -m headrace.service.rest.v2.openapi`.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from headrace.service.rest.v2 import answers
from headrace.service.rest.v2.documentation import KEPT
from headrace.service.rest.v2.routes import ROUTERS


def document() -> dict[str, Any]:
    """The document, from the routes. The name of a route's function is its operationId."""
    app = FastAPI(generate_unique_id_function=lambda route: route.name)
    for router in ROUTERS:
        app.include_router(router)
    found = get_openapi(title="Headrace", version="2", openapi_version="3.1.0", routes=app.routes)
    for operations in found["paths"].values():
        for operation in operations.values():
            # FastAPI cannot know the responses, because the routes return encoded bytes.
            operation["responses"] = {**answers.RESPONSES[operation["operationId"]], "default": answers.PROBLEM}
    found["components"] = {
        **{"schemas": answers.COMPONENTS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    }
    found["security"] = [{"token": []}]
    return found


def text() -> str:
    return json.dumps(document(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    KEPT.write_text(text())
