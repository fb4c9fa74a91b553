"""Shell text around an instance, as the local runner and the pods run it. Pure."""

from __future__ import annotations

from .mode import Mode


def outer_text(before: str, start: str, after: str, *, strict: bool, quiet: bool) -> str:
    """Shell text of the whole run: what comes before the brokers, the command `start` around them, what comes after.

    SIGTERM ends it at once before and after the brokers; while they are there they are to end first. The status is that
    of `start`.
    """
    if before and quiet:
        before = f"{{\n{before}}} > /dev/null\n"
    # Only bash has the operator's `set -E -o pipefail`.
    flags = 'set -eu\n[ -z "${BASH:-}" ] || set -E -o pipefail\n' if strict else ""
    # Every variable that the user's text sets is for the job too.
    return (
        f"set -a\n{flags}{before}set +e\ntrap : TERM\n{start}\nheadrace_status=$?\n"
        f"trap - TERM\n{flags}{after}exit $headrace_status\n"
    )


def sidecar_text(before: str, command: str, after: str, *, strict: bool, quiet: bool) -> str:
    """Shell text of a container beside the brokers. SIGTERM ends `command`, as soon as the program that the shell waits
    for has ended; `after` is run in any case. The status is that of `command`, 143 where it was ended.
    """
    if before and quiet:
        before = f"{{\n{before}}} > /dev/null\n"
    flags = 'set -eu\n[ -z "${BASH:-}" ] || set -E -o pipefail\n' if strict else ""
    return (
        f"set -a\n{flags}{before}set +e\nheadrace_after() {{\ntrap - TERM\n{flags}{after}:\n}}\n"
        f"trap 'headrace_after; exit 143' TERM\n{command}\nheadrace_status=$?\nheadrace_after\nexit $headrace_status\n"
    )


def inner_text(mode: Mode, program: str, *, ready: str = "", done: str = "") -> str:
    """Shell text that runs inside the instance, on the lead; `ready` and `done` are commands around the program."""
    if mode is Mode.INTERACTIVE:
        program = 'trap "exit 0" TERM HUP\nsleep infinity &\nwait\n'
    return f"export fluxsocket=$FLUX_URI\n{ready}{program}headrace_status=$?\n{done}exit $headrace_status\n"
