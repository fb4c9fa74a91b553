"""`headrace api`: runs the HTTP service of an instance, and manages its users and tokens."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import sys

from headrace.cli.api import accounts
from headrace.cli.common.arguments import Parser, port
from headrace.cli.common.errors import missing_extra

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    from headrace.service.serve import Beyond, Listener, Ready


PREFIX = "headrace-api: "
_DEFAULT_PORT = 5000
_PROXY_HEADER = "X-Remote-User"
_AUDIT = (
    "Append a line to FILE for each change and refusal (default with several users: api-audit.jsonl beside the store)"
)


def _parser() -> Parser:
    parser = Parser(
        "headrace api",
        usage="headrace api start|url|users|tokens|doctor [OPTIONS]",
        description="Serve the instance to scripts (/v1, the API of flux-restful-api) and to browsers",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    text = "Serve until SIGINT or SIGTERM"
    start = commands.add_parser("start", prog="headrace api start", help=text, description=text)
    where = start.add_mutually_exclusive_group()
    where.add_argument("--host", default="", help="Address to listen at (default: the variable HOST, or 127.0.0.1)")
    where.add_argument("--socket", default="", metavar="PATH", help="Listen at a unix socket that only you can open")
    start.add_argument(
        "--port",
        type=port,
        metavar="PORT",
        help="Port to listen at; 0 is any free one (default: the variable PORT, or 5000)",
    )
    start.add_argument("--tls-cert", default="", metavar="FILE", help="Certificate (PEM), to serve other machines")
    start.add_argument("--tls-key", default="", metavar="FILE", help="Its key (PEM)")
    start.add_argument(
        "--behind-proxy", action="store_true", help="Only a proxy that terminates TLS can reach the service"
    )
    start.add_argument(
        "--name", action="append", default=[], metavar="NAME", help="Accept this host name in requests, too"
    )
    start.add_argument(
        "--auth",
        choices=("token", "none", *accounts.SEVERAL),
        default="",
        help="How users authenticate. token: an address with a token opens the page, and scripts send a token "
        "(default); none: everybody who can reach the service acts as you; users: several users log in with name "
        "and password (headrace api users); proxy: a proxy at the --socket logs users in and names them in a "
        "header; pam: the users of this machine log in with the password that PAM checks",
    )
    start.add_argument(
        "--proxy-header",
        default="",
        metavar="NAME",
        help=f"With --auth proxy: the header with the user's name (default: {_PROXY_HEADER})",
    )
    start.add_argument(
        "--unknown-users",
        choices=("refuse", "add"),
        default="",
        help="With --auth proxy: refuse users who are not in the store, or add them (default: refuse)",
    )
    accounts.add_database(start)
    start.add_argument("--audit", default="", metavar="FILE", help=_AUDIT)
    start.add_argument(
        "--experiments", default="", metavar="DIR", help="Show the experiments in this folder and below it"
    )
    start.add_argument("--json", action="store_true", help="Print addresses and a token as a JSON object when ready")
    text = "For each service of yours on this machine, print an address that opens the page once"
    url = commands.add_parser("url", prog="headrace api url", help=text, description=text)
    url.add_argument("--json", action="store_true", help="Print a JSON object per line, with a token for scripts")
    accounts.add_parsers(commands)
    text = "Check the requirements of a service with several users"
    doctor = commands.add_parser("doctor", prog="headrace api doctor", help=text, description=text)
    doctor.add_argument(
        "--auth", choices=accounts.SEVERAL, default="users", help="The --auth of start to check (default: users)"
    )
    accounts.add_database(doctor)
    return parser


def main(argv: List[str]) -> int:
    options = _parser().parse_args(argv)
    if options.action == "start":
        return _start(options)
    if options.action == "url":
        return _urls(options)
    accounts.check_extra()
    if options.action == "doctor":
        from headrace.cli.api import doctor

        return doctor.run(options)
    return accounts.run(options)


def _start(options: Any) -> int:
    try:
        from headrace.service import audit, serve, settings
    except ImportError as exc:
        raise missing_extra("the service", "api", exc) from None
    names = os.environ
    if bool(options.tls_cert) != bool(options.tls_key):
        raise settings.SettingsError("--tls-cert and --tls-key go together")
    certificate = (options.tls_cert, options.tls_key) if options.tls_cert else None
    beyond = serve.Beyond(certificate, options.behind_proxy, tuple(options.name))
    serve.check_certificate(certificate, ("--tls-cert", "--tls-key"))
    if certificate and serve.exposed(options.tls_key):
        raise settings.SettingsError(f"--tls-key {serve.exposed(options.tls_key)}")
    if options.auth == "proxy" and not options.socket:
        raise settings.SettingsError(
            "--auth proxy trusts every client, and every user of this machine can connect to a port: give --socket "
            "PATH, which only you and your proxy can open"
        )
    header = settings.proxy_header(options.proxy_header or _PROXY_HEADER)
    listener = _listen(options, beyond)
    chosen = settings.from_environment(names, os.environ.get("FLUX_URI", ""), options.auth, listener.names)
    _check_auth(options, chosen.auth)
    chosen = dataclasses.replace(chosen, behind_proxy=options.behind_proxy, experiments=_experiments(options))
    if chosen.auth == "proxy":
        chosen = dataclasses.replace(chosen, proxy_header=header, adds_unknown=options.unknown_users == "add")
    if chosen.several:
        accounts.check_extra()
        if chosen.auth == "pam":
            _check_pam()
        store = accounts.database(options)
        folder = os.path.dirname(store)
        if not os.path.isdir(folder or "."):
            raise settings.SettingsError(f"{store}: no folder {folder} for the store of users")
        path = options.audit or os.path.join(folder, "api-audit.jsonl")
        chosen = dataclasses.replace(chosen, database=store, audit=path)
    elif options.audit:
        chosen = dataclasses.replace(chosen, audit=options.audit)
    if chosen.audit:
        # Report a path that cannot be opened now; the application opens the file when it starts.
        os.close(audit.open_file(chosen.audit))
    if chosen.auth == "none" and beyond.is_protected and not options.socket:
        raise settings.SettingsError("--auth none is for this machine only: users of other machines must log in")
    if chosen.auth == "none" and not options.socket:
        sys.stderr.write(f"{PREFIX}without a token, every user of this machine can run commands as you\n")
    if 0 < len(chosen.secret_key.encode()) < settings.SHORT_KEY:
        sys.stderr.write(f"{PREFIX}FLUX_SECRET_KEY is short and can be guessed: use 32 random characters\n")
    serve.run(chosen, listener, _print_json if options.json else _print, beyond)
    return 0


def _listen(options: Any, beyond: Beyond) -> Listener:
    """Listen at the address of the options, or of HOST and PORT. Raises SettingsError, OSError."""
    from headrace.service import serve, settings

    if not options.socket:
        port = options.port if options.port is not None else settings.port(os.environ)
        host = options.host or os.environ.get("HOST") or "127.0.0.1"
        return serve.listen(host, _DEFAULT_PORT if port is None else port, beyond)
    if beyond.certificate:
        raise settings.SettingsError("--tls-cert is for --host: a --socket serves this machine only, without TLS")
    if options.port is not None:
        raise settings.SettingsError("--port is for --host: a --socket has no port")
    if options.name:
        raise settings.SettingsError("--name is for --host: a --socket accepts every host name")
    return serve.listen_at(options.socket)


def _experiments(options: Any) -> str:
    """The path of the folder of experiments, "" for none. Raises SettingsError."""
    from headrace.service.settings import SettingsError

    folder: str = options.experiments
    if folder and not os.path.isdir(folder):
        raise SettingsError(f"--experiments {folder}: is not a folder: give one that has experiments")
    return os.path.abspath(folder) if folder else ""


# Options and the values of --auth with which they have an effect.
_OF_AUTH = {"database": accounts.SEVERAL, "proxy_header": ("proxy",), "unknown_users": ("proxy",)}


def _check_auth(options: Any, auth: str) -> None:
    """Raise SettingsError if an option has no effect with this `auth`."""
    from headrace.service.settings import SettingsError

    for name, kinds in _OF_AUTH.items():
        if getattr(options, name) and auth not in kinds:
            option = f"--{name.replace('_', '-')}"
            raise SettingsError(f"{option} is for --auth {' or '.join(kinds)}, and has no effect with --auth {auth}")


def _check_pam() -> None:
    """Raise SettingsError if PAM cannot be used."""
    from headrace.service.settings import SettingsError
    from headrace.service.users import pam

    missing = pam.missing()
    if missing:
        raise SettingsError(missing)


def _print(ready: Ready) -> None:
    print(f"Open {ready.login or ready.url}" + (f" through {ready.socket}" if ready.socket else ""))
    print("The service runs until it is interrupted (Ctrl-C). `headrace api url` prints a new address.", flush=True)


def _print_json(ready: Ready) -> None:
    import json

    print(json.dumps({name: value for name, value in ready._asdict().items() if value}), flush=True)


def _urls(options: Any) -> int:
    """Print the addresses of services, this instance's first.

    Raises OSError if there is none, or it is not up yet.
    """
    from headrace.service import running
    from headrace.wire.client.transport import DEFAULT_URI

    uri = os.environ.get("FLUX_URI") or DEFAULT_URI
    found = sorted(running.found(), key=lambda one: one.get("uri") != uri)
    wrong = None
    if not found or found[0].get("uri") != uri:
        # The instance may have started a service on another machine, or FLUX_URI is the address of a proxy.
        try:
            own = _of_instance()
            found = [own, *(one for one in found if _where(one) != _where(own))]
        except OSError as exc:
            wrong = exc
    for one in found:
        if options.json:
            print(json.dumps(one))
            continue
        through = f" through {one['socket']}" if "socket" in one else ""
        whose = f"    # {one['uri']}" if len(found) > 1 and "uri" in one else ""
        print(f"Open {one.get('login') or one['url']}{through}{whose}")
    if wrong is not None and not (found and wrong.errno == errno.ENOENT):
        raise wrong
    return 0


def _where(service: Dict[str, Any]) -> Tuple[Any, ...]:
    return service.get("uri"), service["url"], service.get("socket")


def _of_instance() -> Dict[str, Any]:
    """The service that the instance has started for its table [headrace.api]. Raises OSError."""
    from headrace.wire.client.handle import Handle

    try:
        with Handle() as handle:
            found: Dict[str, Any] = handle.rpc("api.url").get()
            return found
    except OSError as exc:
        if exc.errno not in (errno.ENOSYS, errno.ENOENT, errno.ECONNREFUSED, errno.EHOSTUNREACH):
            raise
        text = "no service of yours runs on this machine, nor has the instance started one: try `headrace api start`"
        raise OSError(errno.ENOENT, text) from None
