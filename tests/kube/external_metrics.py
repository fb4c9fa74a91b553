"""The external metrics API, served by the tests to a cluster's autoscalers: tests say what value a metric has.

The server runs in this process on the machine's address; an APIService, a Service without selector and an EndpointSlice
make the API server pass `external.metrics.k8s.io` on to it (API aggregation).
"""

from __future__ import annotations

import contextlib
import datetime
import http.server
import json
import ssl
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import until

_GROUP = "external.metrics.k8s.io"
_ROOT = f"/apis/{_GROUP}/v1beta1"
_NAMES = "/api/v1/namespaces/kube-system/services"
_SLICES = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_NAME = "external-metrics"


class ExternalMetrics:
    """Values by metric name; `HorizontalPodAutoscaler`s ask for them as metrics of type External."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def answer(self, path: str) -> dict[str, Any]:
        """The object at a path of the API: its list of resources, or the value of a metric in any namespace."""
        if not path.startswith(f"{_ROOT}/namespaces/"):
            resource = {"name": "value", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{_GROUP}/v1beta1",
                "resources": [{**resource, "singularName": ""}],
            }
        name = path.split("?", maxsplit=1)[0].rpartition("/")[2]
        item = {
            "metricName": name,
            "metricLabels": {},
            "timestamp": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "value": str(self.values.get(name, 0)),
        }
        items = [item] if name in self.values else []
        return {"kind": "ExternalMetricValueList", "apiVersion": f"{_GROUP}/v1beta1", "metadata": {}, "items": items}


@contextlib.contextmanager
def served(cluster: Cluster) -> Iterator[ExternalMetrics]:
    """Serve the API to a cluster until the end."""
    metrics = ExternalMetrics()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(metrics.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests print nothing for each request."""

    server = http.server.ThreadingHTTPServer((cluster.addresses.machine, 0), Handler)
    server.socket = _context(cluster.addresses.machine).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        _register(cluster, server.server_address[1])
        yield metrics
    finally:
        _unregister(cluster)
        server.shutdown()
        server.server_close()


def _context(address: str) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, address)])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pem").write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(Path(folder) / "pem")
    return context


def _register(cluster: Cluster, port: int) -> None:
    service = {"metadata": {"name": _NAME}, "spec": {"ports": [{"port": 443}]}}
    ends = {
        "metadata": {"name": _NAME, "labels": {"kubernetes.io/service-name": _NAME}},
        "addressType": "IPv4",
        "ports": [{"port": port}],
        "endpoints": [{"addresses": [cluster.addresses.machine], "conditions": {"ready": True}}],
    }
    passed = {
        "metadata": {"name": f"v1beta1.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "version": "v1beta1",
            "service": {"namespace": "kube-system", "name": _NAME},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
    cluster.api.request("POST", _NAMES, service)
    cluster.api.request("POST", _SLICES, ends)
    cluster.api.request("POST", _SERVICES, passed)

    def reached() -> bool:
        with contextlib.suppress(KubeError, OSError):
            return bool(cluster.api.get(f"{_ROOT}/namespaces/default/any")["kind"] == "ExternalMetricValueList")
        return False

    until(reached)


def _unregister(cluster: Cluster) -> None:
    for path in (f"{_SERVICES}/v1beta1.{_GROUP}", f"{_SLICES}/{_NAME}", f"{_NAMES}/{_NAME}"):
        with contextlib.suppress(KubeError):
            cluster.api.request("DELETE", path)
