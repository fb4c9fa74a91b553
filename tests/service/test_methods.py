"""HEAD, OPTIONS and the header `Allow` of every route; the routes are those of the application."""

from __future__ import annotations

import http.client
import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.service.conftest import TestClient, serving
from tests.service.test_ownership import routes

from headrace.service import metrics_api
from waiting import until

# Streams of a job that runs, whose GET would go on.
ENDLESS = ("/events", "/output/stream")


@pytest.fixture
def job(group: Any) -> Any:
    """The id of a job of ann's that runs and has written nothing."""
    client = group.client("ann.x")
    id = client.post("/v1/jobs/submit", json={"command": "sleep 1000"}).json()["id"]
    until(lambda: client.get(f"/v1/jobs/{id}").json()["state"] == "RUN")
    yield id
    client.post(f"/v1/jobs/{id}/cancel")


def without_moment(headers: Any) -> dict[str, str]:
    """Headers that do not change from one moment to the next: pages have times, and the session's token of forms."""
    return {name: value for name, value in headers.items() if name not in ("content-length", "set-cookie")}


@pytest.mark.parametrize("name", ["ann.x", "bob.x", ""])
def test_head_answers_as_get_without_a_body_whoever_asks(group: Any, job: int, name: str) -> None:
    asked = 0
    by_header, by_page = group.client(name), group.client(name, cookie=True)
    for route in routes(group.app):
        if route.method != "GET":
            continue
        path = route.at({"job": str(job)})
        client = by_header if route.path.startswith(("/v1/", "/v2/")) else by_page
        head = client.head(path)
        assert head.content == b"", route
        if name and path.endswith(ENDLESS):
            # /v1 streams nothing of a job that is not there.
            is_seen = name == "ann.x" or route.kind != "job" or route.path.startswith("/v1/")
            assert head.status_code == (200 if is_seen else 404), route
        else:
            get = client.get(path)
            assert head.status_code == get.status_code, route
            assert without_moment(head.headers) == without_moment(get.headers), route
        asked += 1
    assert asked > 30
    # What streams had is given back.
    assert not group.app.state.service.slots._open


def example(path: str) -> str:
    """A path with the names of its parameters in their places."""
    return re.sub(r"{(\w+)(:path)?}", r"\1", path)


def pattern(path: str) -> str:
    """The regular expression of a path; a parameter of the kind `path` may have slashes."""
    return re.sub(r"{\w+(:path)?}", lambda found: ".+" if found[1] else "[^/]+", path)


def test_options_and_405_name_the_methods_of_all_routes_of_a_path(group: Any) -> None:
    client = group.client()
    all_routes = routes(group.app)
    methods: dict[str, set[str]] = {}
    for path in {route.path for route in all_routes}:
        # `/jobs/cancel` is the path of a job, too.
        methods[path] = {one.method for one in all_routes if re.fullmatch(pattern(one.path), example(path))}
    for path, has in methods.items():
        at = example(path)
        expected = {*has, "OPTIONS", *(("HEAD",) if "GET" in has else ())}
        answer = client.options(at)
        assert (answer.status_code, answer.content) == (204, b""), path
        assert set(answer.headers["allow"].split(", ")) == expected, path
        for method in {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "TRACE"} - expected:
            answer = client.request(method, at)
            assert answer.status_code == 405 and set(answer.headers["allow"].split(", ")) == expected, (method, path)
    assert methods["/v2/jobs"] == {"GET", "POST"} and methods["/v2/users/{name}"] == {"POST", "DELETE"}


def test_static_files_are_read_only_and_what_is_not_there_has_no_methods(client: Any) -> None:
    assert (
        client.head("/static/style.css").headers["content-length"]
        == client.get("/static/style.css").headers["content-length"]
    )
    for method in "OPTIONS", "POST":
        answer = client.request(method, "/static/style.css")
        assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
    for method in "OPTIONS", "HEAD", "GET":
        answer = client.request(method, "/nosuch")
        assert answer.status_code == 404 and "allow" not in answer.headers


def test_the_metrics_api_has_them_too(shared: Any) -> None:
    client = TestClient(metrics_api.create_app(metrics_api.Options(uri=shared.uri)))
    assert client.head("/apis").status_code == 200 and client.head("/apis").content == b""
    for method, status in ("OPTIONS", 204), ("POST", 405):
        answer = client.request(method, "/apis")
        assert (answer.status_code, answer.headers["allow"]) == (status, "GET, HEAD, OPTIONS")


def test_a_connection_goes_on_after_the_head_of_a_stream(shared: Any) -> None:
    id = shared.flux("job", "id", shared.flux("submit", "sleep", "1000").strip()).strip()
    with serving(shared.uri) as service:
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc)
        for path in (
            f"/v2/jobs/{id}/output?follow=true",
            f"/jobs/{id}/output/events",
            "/v2/events",
            "/v2/jobs",
            "/queue",
        ):
            connection.request("HEAD", path)
            answer = connection.getresponse()
            assert (answer.status, answer.read(), answer.will_close) == (200, b"", False), path
        connection.close()
    shared.flux("cancel", id)
