"""The page that describes `/v2`."""

from __future__ import annotations

import re
from typing import Any

from headrace.service.rest.v2 import openapi
from headrace.service.rest.v2.documentation import page


def test_the_page_has_each_operation_and_field() -> None:
    found = page()
    for path, operations in openapi.document()["paths"].items():
        for method, operation in operations.items():
            assert f"<code>{method.upper()} {path}</code>" in found
            assert all(f">{one['name']}<" in found for one in operation.get("parameters", ()))
    assert ">cores_per_task<" in found and ">jobspec<" in found


def test_the_page_loads_nothing_from_elsewhere_and_has_nothing_inline(client: Any) -> None:
    answer = client.get("/v2/docs")
    assert answer.status_code == 200 and answer.headers["content-security-policy"].startswith("default-src 'self'")
    loaded = re.findall(r'(?:href|src)="([^"]*)"', answer.text)
    assert all(path.startswith("/") and not path.startswith("//") for path in loaded)
    assert not re.search(r"<script|<style|\bstyle=|\bon[a-z]+=", answer.text)
    assert all(client.get(path).status_code < 400 for path in loaded)
