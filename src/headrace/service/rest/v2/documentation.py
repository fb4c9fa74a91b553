"""The documentation page of `/v2`, made from its OpenAPI document.

FastAPI's own pages are not used, because they load scripts from other sites.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

# The OpenAPI document, written by openapi.py.
KEPT = Path(__file__).with_name("openapi.json")
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>The interface /v2 · Headrace</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/style.css">
</head>
<body>
<header><a class="brand" href="/jobs">Headrace</a></header>
<main id="content">
<h1>The interface /v2</h1>
<p>Requests need a token: <code>Authorization: Bearer TOKEN</code>. Errors are problems of RFC 9457.
This page as a document for programs: <a href="/v2/openapi.json">OpenAPI 3.1</a>.</p>
{}
</main>
</body>
</html>
"""


@cache
def page() -> str:
    """The page as HTML."""
    document = json.loads(KEPT.read_text())
    parts = [
        _operation(method.upper(), path, operation, document["components"]["schemas"])
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    return _PAGE.format("\n".join(parts))


def _operation(method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    rows = [
        (one["name"], one["in"], one["schema"], one.get("description", "A job's id in any form"))
        for one in operation.get("parameters", ())
    ]
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        for form in body["schema"].get("anyOf", (body["schema"],)):
            if "$ref" in form:
                form = schemas[form["$ref"].rpartition("/")[2]]
            rows += [
                (name, kind, schema, schema.get("description", ""))
                for name, schema in form.get("properties", {}).items()
            ]
    head = f"<h2><code>{escape(f'{method} {path}')}</code></h2>\n<p>{escape(operation['summary'])}</p>"
    if not rows:
        return head
    names = "".join(f'<th scope="col">{name}</th>' for name in ("Field", "In", "Type", "Meaning"))
    region = f'<div class="scroll" role="region" aria-label="{escape(f"Fields of {method} {path}")}" tabindex="0">'
    lines = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(where)}</td><td>{escape(_type(schema))}</td>'
        f'<td class="about">{escape(text)}</td></tr>'
        for name, where, schema, text in rows
    )
    return f"{head}\n{region}<table><thead><tr>{names}</tr></thead><tbody>\n{lines}\n</tbody></table></div>"


def _type(schema: Mapping[str, Any]) -> str:
    kinds = schema.get("type", [one.get("type", "") for one in schema.get("oneOf", ())])
    return kinds if isinstance(kinds, str) else " or ".join(kinds)
