"""Options of programs that act in a Kubernetes cluster (`kube.runtime.program`), and how such a program is run."""

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
    """Add the options of reaching the cluster, of the program's addresses, its Lease and its log."""
    run.add_argument("--kubeconfig", default="", metavar="FILE", help="How to reach the cluster from outside of it")
    run.add_argument("--context", default="", help="The context of the kubeconfig")
    run.add_argument(
        "--metrics-bind", type=address, default=":8080", metavar="ADDRESS", help="Where /metrics is ('' is nowhere)"
    )
    run.add_argument(
        "--health-bind", type=address, default=":8081", metavar="ADDRESS", help="Where /healthz and /readyz are"
    )
    run.add_argument(
        "--webhook-bind", type=address, default="", metavar="ADDRESS", help="Where the admission webhook is"
    )
    run.add_argument("--no-webhook", dest="webhook_bind", action="store_const", const="", help="No webhook (default)")
    run.add_argument(
        "--webhook-certificate",
        default="",
        metavar="DIR",
        help="Where others, such as cert-manager, put tls.crt and tls.key",
    )
    run.add_argument(
        "--webhook-address",
        default="",
        metavar="HOST",
        help="The name of a webhook outside the cluster",
    )
    run.add_argument("--no-leader-elect", dest="leader_elect", action="store_false", help="Act without a Lease")
    run.add_argument("--leader-elect", action="store_true", help="Hold a Lease while acting (the default)")
    run.add_argument(
        "--lease-namespace",
        default="",
        metavar="NAMESPACE",
        help="Where the Lease is, in a cluster by default beside the pod",
    )
    run.add_argument("--log-format", choices=("json", "text"), default="json", help="How log lines are written")
    run.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    run.set_defaults(leader_elect=True)


def need_extra(program: str) -> None:
    """Raise CommandError where what `program` ("the operator") needs is not installed."""
    try:
        import aiohttp  # noqa: F401 - only whether it is installed
    except ImportError as exc:
        raise missing_extra(program, "kube", exc) from None


def run_until_stopped(options: Namespace, serve: Callable[[Serving], Coroutine[Any, Any, int]]) -> int:
    """Run a program with these options; its exit status. Raises CommandError where there is no cluster."""
    import asyncio

    from headrace.k8s.runtime.credentials import CredentialsError
    from headrace.k8s.runtime.program import Serving, log_to_stderr

    log_to_stderr(options.log_format, options.log_level)
    try:
        return asyncio.run(serve(Serving(**{name: getattr(options, name) for name in _NAMES})))
    except CredentialsError as exc:
        raise CommandError(str(exc)) from None
