from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("host", ["localhost", "localhost:5000", "127.0.0.1:80", "[::1]:5000", "LocalHost"])
def test_it_answers_to_its_names(shared: Any, served: Any, host: str) -> None:
    client = served(shared, hosts=frozenset({"localhost", "127.0.0.1", "[::1]"}))
    assert client.get("/v1/auth", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:5000", "localhost.evil.example", "", "[::2]"])
@pytest.mark.parametrize("path", ["/v1/auth", "/jobs", "/static/style.css", "/nosuch"])
def test_another_name_is_refused_everywhere(shared: Any, served: Any, host: str, path: str) -> None:
    client = served(shared, hosts=frozenset({"localhost"}))
    assert client.get(path, headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "hosts",
    [
        *(["localhost", "localhost"], ["localhost", "evil.example"], ["evil.example", "localhost"], ["localhost", ""]),
        *(["localhost:5000:x"], ["localhost:x"], ["localhost:-1"], ["localhost:65536"], ["localhost:5000 "], ["[::1"]),
        *(["localhost, evil.example"], ["user@localhost"], ["localhost/"], ["::1"], ["[::1]x"], ["localh\u00f6st"]),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_there_is_one_well_formed_host(shared: Any, served: Any, hosts: list[str], method: str) -> None:
    headers = [(b"host", host.encode("latin-1")) for host in hosts]
    for names in (frozenset({"localhost", "[::1]"}), frozenset()):
        client = served(shared, hosts=names)
        assert client.request(method, "/v1/auth", headers=headers).status_code == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:81"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "http://evil.example/localhost"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_changes_come_from_its_own_pages_or_from_programs(client: Any, headers: Any, status: int) -> None:
    assert client.post("/v1/jobs/submit", params={"command": "true"}, headers=headers).status_code == status
    assert client.get("/v1/jobs", headers=headers).status_code == 200


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1, 5 << 20])
def test_a_body_has_a_bound_also_where_its_length_is_not_told(client: Any, size: int) -> None:
    whole = b'{"command": "true", "x": "' + b"x" * (size - 28) + b'"}'
    assert len(whole) == size

    def pieces() -> Any:
        for at in range(0, size, 65536):
            yield whole[at : at + 65536]

    for content in (whole, pieces()):
        assert client.post("/v1/jobs/submit", content=content).status_code == (413 if size > 1 << 20 else 200)


@pytest.mark.parametrize("path", ["/v1/jobs", "/jobs", "/static/style.css", "/nosuch", "/v1/jobs/1"])
def test_each_response_keeps_browsers_from_loading_what_is_not_ours(client: Any, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
