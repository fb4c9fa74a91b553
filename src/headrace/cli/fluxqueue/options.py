"""Options of several `headrace fluxqueue` commands: the history's database, and TLS of gRPC."""

from __future__ import annotations

import os
from contextlib import contextmanager

from headrace.cli.common.errors import CommandError, missing_extra, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Iterator, Optional

    from headrace.cli.common.arguments import Parser
    from headrace.cluster_queue.services.server import Tls
    from headrace.cluster_queue.store.database import Address


def add_store(parser: Parser) -> None:
    """Add the options of the database with the history."""
    parser.add_argument(
        "--store", default="", metavar="URL", help="Store of the history: sqlite:PATH or postgresql://USER@HOST/NAME"
    )
    parser.add_argument(
        "--store-password-file", default="", metavar="FILE", help="File with the password of the PostgreSQL user"
    )
    parser.add_argument(
        "--statedir", default="", metavar="DIR", help="Without --store, use DIR/store.sqlite as the store"
    )


def store_of(options: Namespace) -> Optional[Address]:
    """The database that the options name, None without one. Raises CommandError."""
    from headrace.cluster_queue.store.database import Address

    if not options.store and not options.statedir:
        if options.store_password_file:
            raise CommandError("--store-password-file needs --store")
        return None
    try:
        store = Address(options.store or f"sqlite:{options.statedir}/store.sqlite", options.store_password_file)
    except ValueError as exc:
        raise CommandError(f"--store: {exc}") from None
    if not store.path:
        try:
            import psycopg  # noqa: F401 - only whether it is installed
        except ImportError as exc:
            raise missing_extra("a store in PostgreSQL", "fluxqueue", exc) from None
    return store


def add_tls(parser: Parser, prefix: str) -> None:
    parser.add_argument(f"--{prefix}tls-cert", dest="tls_cert", metavar="FILE", help="Certificate (PEM)")
    parser.add_argument(f"--{prefix}tls-key", dest="tls_key", metavar="FILE", help="Its key (PEM)")
    parser.add_argument(
        f"--{prefix}client-ca",
        dest="client_ca",
        metavar="FILE",
        help="Accept only clients with a certificate signed by one in FILE",
    )


def given_tls(options: Namespace, prefix: str) -> dict[str, str]:
    """The options for certificates and keys that are given, with their files."""
    files = {"tls-cert": options.tls_cert, "tls-key": options.tls_key, "client-ca": options.client_ca}
    return {f"--{prefix}{name}": file for name, file in files.items() if file is not None}


def tls_of(options: Namespace, prefix: str) -> Tls | None:
    """Read the certificates that the options name, None without any. Raises CommandError."""
    from headrace.cluster_queue.services.server import Tls

    cert, key, client_ca = f"--{prefix}tls-cert", f"--{prefix}tls-key", f"--{prefix}client-ca"
    files = given_tls(options, prefix)
    if not files:
        return None
    if not {cert, key} <= files.keys():
        raise CommandError(f"{cert} and {key} go together, and {client_ca} needs both")
    for option, file in files.items():
        # A shell passes "" for a variable without a value. Starting without TLS then would be a surprise.
        if not file:
            raise CommandError(f"{option}: must be a file, not ''")
    found = {option: bytes_of(file) for option, file in files.items()}
    for option in (cert, client_ca):
        if option in found:
            _check_certificates(found[option], f"{option} {files[option]}")
    _check_pair(found[cert], found[key], f"{cert} {files[cert]}", f"{key} {files[key]}")
    return Tls(found[cert], found[key], found.get(client_ca))


def _check_certificates(pem: bytes, where: str) -> None:
    """Raise CommandError if `pem` has no certificate; `where` names the option and file in the error."""
    import ssl

    try:
        # Comments between the certificates may have characters beyond ASCII.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=pem.decode("ascii", "ignore"))
    except (ValueError, ssl.SSLError):
        raise CommandError(f"{where}: no readable certificate (PEM)") from None


def _check_pair(certificate: bytes, key: bytes, cert_option: str, key_option: str) -> None:
    """Raise CommandError if the key does not fit the certificate.

    The last two arguments name the options and files.
    """
    import ssl

    try:
        with _in_memory(certificate) as cert_path, _in_memory(key) as key_path:
            # Without a password argument, OpenSSL would ask at the terminal for the password of an encrypted key.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_path, key_path, password="")
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            why = "but is the key of another certificate"
            raise CommandError(f"{key_option}: must be the key of {cert_option}, {why}") from None
        why = f" ({exc.reason.lower().replace('_', ' ')})" if exc.reason else ""
        raise CommandError(f"{key_option}: must be the key of {cert_option} (PEM), without a password{why}") from None


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield the path of a file in memory.

    The ssl module reads keys from files only, and the key must not be written to a disk.
    """
    with os.fdopen(os.memfd_create("headrace-tls"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def bytes_of(name: str) -> bytes:
    """The content of a file. Raises CommandError."""
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError as exc:
        raise CommandError(refusal(exc)) from None


def need_extra() -> None:
    """Raise CommandError if a package that the gRPC services need is not installed."""
    try:
        import google.protobuf  # noqa: F401 - only whether they are installed
        import grpc  # noqa: F401
    except ImportError as exc:
        raise missing_extra("gRPC", "fluxqueue", exc) from None
