"""`headrace metrics-api start`: serves an instance's metrics as custom metrics of Kubernetes."""

from __future__ import annotations

import os
import sys

from headrace.cli.common.arguments import Parser, port
from headrace.cli.common.errors import missing_extra

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "headrace-metrics-api: "


def _parser() -> Parser:
    parser = Parser(
        "headrace metrics-api",
        usage="headrace metrics-api start [OPTIONS]",
        description="Serve an instance's metrics to Kubernetes autoscalers (custom.metrics.k8s.io/v1beta2)",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    text = "Serve until SIGINT or SIGTERM"
    start = commands.add_parser("start", prog="headrace metrics-api start", help=text, description=text)
    start.add_argument("--host", default="0.0.0.0", help="Address to listen at (default: 0.0.0.0, all addresses)")
    start.add_argument("--port", type=port, default=8443, help="Port to listen at; 0 is any free one (default: 8443)")
    start.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="Answer for this namespace (default: the pod's own, or flux-operator); may be given several times",
    )
    start.add_argument(
        "--service-name",
        default="",
        metavar="NAME",
        help="The Service that the metrics belong to (default: custom-metrics-apiserver)",
    )
    start.add_argument(
        "--api-path",
        default="",
        metavar="PATH",
        help="Path of the API (default: /apis/custom.metrics.k8s.io/v1beta2)",
    )
    start.add_argument("--ssl-certfile", default="", metavar="FILE", help="Certificate (PEM)")
    start.add_argument("--ssl-keyfile", default="", metavar="FILE", help="Its key (PEM)")
    start.add_argument(
        "--custom-metric",
        default="",
        metavar="FILE",
        help="Python file with more metrics: each function gets a handle and returns a value",
    )
    start.add_argument(
        "--no-cache", action="store_true", help="Query the broker for each request instead of once a second"
    )
    return parser


def main(argv: List[str]) -> int:
    options = _parser().parse_args(argv)
    try:
        from headrace.service import metrics_api, serve, settings
    except ImportError as exc:
        raise missing_extra("the metrics API", "api", exc) from None
    if bool(options.ssl_certfile) != bool(options.ssl_keyfile):
        raise settings.SettingsError("--ssl-certfile and --ssl-keyfile go together")
    certificate = (options.ssl_certfile, options.ssl_keyfile) if options.ssl_certfile else None
    serve.check_certificate(certificate, ("--ssl-certfile", "--ssl-keyfile"))
    # A warning only: all users of a pod can read a mounted Secret, and a pod has no other users.
    if certificate and serve.exposed(options.ssl_keyfile):
        sys.stderr.write(f"{PREFIX}--ssl-keyfile {serve.exposed(options.ssl_keyfile)}\n")
    path = options.api_path or metrics_api.DEFAULT_PATH
    if not path.startswith("/"):
        raise settings.SettingsError(f"--api-path must begin with /, not {path}")
    chosen = metrics_api.Options(
        uri=os.environ.get("FLUX_URI", ""),
        namespaces=tuple(options.namespace) or (metrics_api.own_namespace(),),
        service_name=options.service_name or metrics_api.DEFAULT_SERVICE,
        api_path=path,
        user_metrics=metrics_api.read_user_file(options.custom_metric) if options.custom_metric else {},
        cache=not options.no_cache,
    )
    metrics_api.run(chosen, metrics_api.listen(options.host, options.port), certificate)
    return 0
