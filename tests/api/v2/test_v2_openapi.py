"""The OpenAPI document of `/v2` that is kept."""

from __future__ import annotations

import json
from typing import Any

from headrace.api.v2 import openapi


def test_the_kept_document_is_that_of_the_routes(client: Any) -> None:
    assert openapi.KEPT.read_text() == openapi.text(), "python -m headrace.api.v2.openapi writes it anew"
    assert client.get("/v2/openapi.json").json() == json.loads(openapi.text())


def test_each_field_is_described() -> None:
    paths = openapi.document()["paths"]
    names = {one["name"] for one in paths["/v2/jobs"]["get"]["parameters"]}
    assert {"state", "user", "queue", "name", "since", "before", "limit", "cursor", "sort", "fields"} <= names
    forms = paths["/v2/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    assert "cores_per_task" in forms[0]["properties"] and "jobspec" in forms[1]["properties"]
    assert all(operation["summary"] for path in paths.values() for operation in path.values())
