"""`flux keygen`: creates a CURVE certificate for an instance whose brokers connect by configuration.

The key pair is random and comes from libzmq, which is loaded only here, because no other command needs it. The file is
in the certificate format of ZeroMQ's tools and readable only by its owner. The secret key is never printed.
"""

from __future__ import annotations

import os
import sys
import time

from headrace import FLUX_VERSION
from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-keygen: "

_COMMAND = Command(
    "flux-keygen",
    "[OPTIONS] [PATH]",
    "Create the key pair with which the brokers of an instance authenticate each other",
    (
        ("n", "name", "NAME", "Name in the certificate (default: this host's)"),
        ("", "meta", "KEYVALS", "More metadata for the certificate: KEY[=VALUE], separated by commas"),
    ),
)


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    operands = options.need(0, 1)
    text = certificate(options.get("name", os.uname().nodename), options.get("meta"))
    if not operands:
        sys.stderr.write("flux-keygen: WARNING: add PATH argument to save generated certificate\n")
        return 0
    fd = os.open(operands[0], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
    return 0


def certificate(name: str, meta: str = "") -> str:
    """The text of a new certificate with its secret key.

    Raises CommandError for metadata that is not KEY or KEY=VALUE, or that the file format cannot represent.
    """
    zmq = __import__("zmq")
    public, secret = zmq.curve_keypair()
    now = time.localtime()
    entries = {
        "name": name,
        "keygen.flux-core-version": FLUX_VERSION,
        "keygen.hostname": os.uname().nodename,
        "keygen.time": time.strftime("%Y-%m-%dT%H:%M:%S", now),
        "keygen.userid": str(os.getuid()),
        "keygen.zmq-version": zmq.zmq_version(),
    }
    for pair in [pair for pair in meta.split(",") if pair]:
        key, _, value = pair.partition("=")
        if not key:
            raise CommandError(f"--meta: '{pair}' is not KEY or KEY=VALUE")
        entries[key] = value
    for key, value in entries.items():
        if '"' in value or not (key + value).isprintable() or len(key.split()) != 1:
            raise CommandError(f"{key}={value!r}: a certificate takes no quotes, control characters or spaces in names")
    lines = [
        f"#   ****  Generated on {time.strftime('%Y-%m-%d %H:%M:%S', now)} by headrace  ****",
        "#   ZeroMQ CURVE **Secret** Certificate",
        "#   DO NOT PROVIDE THIS FILE TO OTHER USERS nor change its permissions.",
        "",
        "metadata",
        *(f'    {key} = "{value}"' for key, value in entries.items()),
        "curve",
        f'    public-key = "{public.decode()}"',
        f'    secret-key = "{secret.decode()}"',
    ]
    return "\n".join(lines) + "\n"
