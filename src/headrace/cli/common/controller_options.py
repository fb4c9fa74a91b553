"""Options of programs that run as controllers in Kubernetes (`k8s.runtime.program`)."""

from __future__ import annotations

from headrace.cli.common.arguments import address
from headrace.cli.common.errors import CommandError, missing_extra

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Callable, Coroutine

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.program import Serving

_NAMES = (
    *("kubeconfig", "context", "leader_elect", "lease_namespace", "metrics_bind", "health_bind"),
    *("webhook_bind", "webhook_certificate", "webhook_address"),
)


def add_to(run: Parser) -> None:
    """Add the options for the connection to the cluster, and the program's addresses, Lease and log."""
    run.add_argument("--kubeconfig", default="", metavar="FILE", help="The kubeconfig file, to run outside the cluster")
    run.add_argument("--context", default="", help="The context of the kubeconfig to use")
    run.add_argument(
        "--metrics-bind",
        type=address,
        default=":8080",
        metavar="ADDRESS",
        help="Serve /metrics at this address (default: :8080; '' disables it)",
    )
    run.add_argument(
        "--health-bind",
        type=address,
        default=":8081",
        metavar="ADDRESS",
        help="Serve /healthz and /readyz at this address (default: :8081)",
    )
    run.add_argument(
        "--webhook-bind",
        type=address,
        default="",
        metavar="ADDRESS",
        help="Serve the admission webhook at this address",
    )
    run.add_argument("--no-webhook", dest="webhook_bind", action="store_const", const="", help="No webhook (default)")
    run.add_argument(
        "--webhook-certificate",
        default="",
        metavar="DIR",
        help="Use tls.crt and tls.key in DIR, for example from cert-manager",
    )
    run.add_argument(
        "--webhook-address",
        default="",
        metavar="HOST",
        help="Host name of a webhook that runs outside the cluster",
    )
    run.add_argument("--no-leader-elect", dest="leader_elect", action="store_false", help="Run without leader election")
    run.add_argument("--leader-elect", action="store_true", help="Hold a Lease while active (default)")
    run.add_argument(
        "--lease-namespace",
        default="",
        metavar="NAMESPACE",
        help="Namespace of the Lease (default: the pod's own)",
    )
    run.add_argument(
        "--log-format", choices=("json", "text"), default="json", help="Format of log lines (default: json)"
    )
    run.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="Lowest level to log (default: info)",
    )
    run.set_defaults(leader_elect=True)


def need_extra(program: str) -> None:
    """Raise CommandError if a package that `program` ("the operator") needs is not installed."""
    try:
        import aiohttp  # noqa: F401 - only whether it is installed
    except ImportError as exc:
        raise missing_extra(program, "kube", exc) from None


def run_until_stopped(options: Namespace, serve: Callable[[Serving], Coroutine[Any, Any, int]]) -> int:
    """Run a program with these options; returns its exit status. Raises CommandError without credentials."""
    import asyncio

    from headrace.k8s.runtime.credentials import CredentialsError
    from headrace.k8s.runtime.program import Serving, log_to_stderr

    log_to_stderr(options.log_format, options.log_level)
    try:
        return asyncio.run(serve(Serving(**{name: getattr(options, name) for name in _NAMES})))
    except CredentialsError as exc:
        raise CommandError(str(exc)) from None
