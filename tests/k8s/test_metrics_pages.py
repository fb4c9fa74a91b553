"""Pages of the metrics APIs: what they list, and how a refusal is answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from headrace.k8s.metrics_api import CUSTOM, EXTERNAL, Page, Refused, Request, answer, lists


def answered(page: Page, path: str = "/", query: str = "", **fields: str) -> tuple[int, Any]:
    status, body = asyncio.run(answer(page, Request(path, fields, {"labelSelector": query})))
    return status, json.loads(body)


def test_the_lists_have_each_group_version_and_its_metrics() -> None:
    pages = lists({CUSTOM: ["services/a"], EXTERNAL: ["b"]})
    assert list(pages) == ["/apis", f"/apis/{CUSTOM}", f"/apis/{EXTERNAL}"]
    _, groups = answered(pages["/apis"])
    assert [one["name"] for one in groups["groups"]] == ["custom.metrics.k8s.io", "external.metrics.k8s.io"]
    assert answered(pages[f"/apis/{CUSTOM}"])[1]["resources"][0]["name"] == "services/a"


def test_a_refusal_is_a_status_with_its_code() -> None:
    async def page(request: Request) -> dict[str, Any]:
        if not request.chosen()({"a": "b"}):
            raise Refused(503, "come again")
        return {"metric": request.metric(["x", "y"], " of Services")}

    assert answered(page, metric="x") == (200, {"metric": "x"})
    for fields, code, text in (
        ({"metric": "z"}, 404, "there is no metric z of Services: x, y"),
        ({"metric": "x", "query": "a=c"}, 503, "come again"),
        ({"metric": "x", "query": "=="}, 400, "'==' is not a requirement of a label selector"),
    ):
        status, document = answered(page, **fields)
        assert (status, document["code"], document["message"]) == (code, code, text)
