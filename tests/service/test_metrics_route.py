"""Who reads `/metrics`: programs of this machine, those with a token, and Debian's Prometheus."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import ENVIRONMENT, Instance

from headrace.service.broker_link import BrokerLink
from waiting import until


def test_from_elsewhere_a_token_is_needed(group: Any) -> None:
    # The test client has no address of this machine.
    assert group.client().get("/metrics").status_code == 401
    assert group.client("ann.x").get("/metrics").status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "203.0.113.7"])
def test_with_private_mode_an_administrator_reads_it(group: Any, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = BrokerLink.call

    async def private(self: BrokerLink, topic: str, *arguments: Any, **more: Any) -> Any:
        found = await call(self, topic, *arguments, **more)
        return {**found, "access": {"private-mode": True}} if topic == "config.get" else found

    def status(name: str) -> int:
        client = TestClient(group.app, client=(host, 1), base_url="http://localhost")
        if name:
            client.headers["Authorization"] = group.client(name).headers["Authorization"]
        return int(client.get("/metrics").status_code)

    assert status("") == (200 if host == "127.0.0.1" else 401)
    monkeypatch.setattr(BrokerLink, "call", private)
    assert [status(name) for name in ("", "ann.x", "boss.x")] == [401, 403, 200]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def asked(prometheus: str, query: str) -> dict[str, float]:
    """The answer of a running Prometheus: values by what the label `state` has, or ""."""
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?query={urllib.parse.quote(query)}") as answer:
        found = json.load(answer)["data"]["result"]
    return {one["metric"].get("state", ""): float(one["value"][1]) for one in found}


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_debians_prometheus_reads_it_from_this_machine(instance: Instance, tmp_path: Path) -> None:
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("prometheus is not installed (make packages)")
    command = [Path(sys.executable).parent / "headrace", "api", "start", "--port", "0", "--json"]
    environment = {**ENVIRONMENT, "FLUX_URI": instance.uri}
    port = free_port()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        address = urllib.parse.urlsplit(json.loads(service.stdout.readline())["url"]).netloc
        (tmp_path / "prometheus.yml").write_text(
            "scrape_configs:\n  - job_name: headrace\n    scrape_interval: 1s\n"
            f"    static_configs: [{{targets: ['{address}']}}]\n"
        )
        scraper = subprocess.Popen(
            [
                prometheus,
                f"--config.file={tmp_path}/prometheus.yml",
                f"--storage.tsdb.path={tmp_path}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            env={"PATH": os.environ["PATH"]},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: answers(f"{url}/-/ready"))
            job = instance.flux("submit", "sleep", "1000").split()[0]
            until(lambda: asked(url, 'headrace_jobs{queue=""}').get("run") == 1)
            assert asked(url, "up") == {"": 1}
            assert asked(url, "headrace_demand_nodes") == {"": 1}
            instance.flux("cancel", job)
            until(lambda: asked(url, "sum(headrace_jobs_total)") == {"": 1})
        finally:
            scraper.terminate()
            scraper.wait()
            service.terminate()
