"""Options of programs that serve gRPC: certificates and keys; and whether what these programs need is installed."""

from __future__ import annotations

from headrace.cli.common.errors import CommandError, missing_extra, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.fluxqueue.services.server import Tls


def add_tls(parser: Parser, prefix: str) -> None:
    parser.add_argument(f"--{prefix}tls-cert", dest="tls_cert", default="", metavar="FILE", help="Certificate (PEM)")
    parser.add_argument(f"--{prefix}tls-key", dest="tls_key", default="", metavar="FILE", help="Its key (PEM)")
    parser.add_argument(
        f"--{prefix}client-ca",
        dest="client_ca",
        default="",
        metavar="FILE",
        help="Take only clients with a certificate that one of FILE has signed",
    )


def tls_of(options: Namespace, prefix: str) -> Tls | None:
    """The certificates that the options name. Raises CommandError."""
    from headrace.fluxqueue.services.server import Tls

    if bool(options.tls_cert) != bool(options.tls_key) or (options.client_ca and not options.tls_cert):
        raise CommandError(f"--{prefix}tls-cert and --{prefix}tls-key go together, and --{prefix}client-ca with them")
    if not options.tls_cert:
        return None
    return Tls(*(bytes_of(name) if name else b"" for name in (options.tls_cert, options.tls_key, options.client_ca)))


def bytes_of(name: str) -> bytes:
    """What is in a file. Raises CommandError."""
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError as exc:
        raise CommandError(refusal(exc)) from None


def need_extra() -> None:
    """Raise CommandError where what the gRPC services need is not installed."""
    try:
        import google.protobuf  # noqa: F401 - only whether they are installed
        import grpc  # noqa: F401
    except ImportError as exc:
        raise missing_extra("gRPC", "fluxqueue", exc) from None
