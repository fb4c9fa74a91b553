"""Shell text around an instance, for the local runner and for pods. Pure."""

from __future__ import annotations

from .mode import Mode


def outer_text(before: str, start: str, after: str, *, strict: bool, quiet: bool) -> str:
    """Shell text of the whole run: `before` the brokers, the command `start` that runs them, and `after` them.

    Before and after the brokers, SIGTERM ends the text at once; while they run, the brokers end first. The status is
    that of `start`.
    """
    if before and quiet:
        before = f"{{\n{before}}} > /dev/null\n"
    # Only bash has `set -E -o pipefail`, which the Flux Operator uses.
    flags = 'set -eu\n[ -z "${BASH:-}" ] || set -E -o pipefail\n' if strict else ""
    # All variables that the user's text sets are exported to the job.
    return (
        f"set -a\n{flags}{before}set +e\ntrap : TERM\n{start}\nheadrace_status=$?\n"
        f"trap - TERM\n{flags}{after}exit $headrace_status\n"
    )


def sidecar_text(before: str, command: str, after: str, *, strict: bool, quiet: bool) -> str:
    """Shell text of a sidecar. SIGTERM ends `command` as soon as the program that the shell waits for has ended;
    `after` is always run. The status is that of `command`, or 143 after SIGTERM.
    """
    if before and quiet:
        before = f"{{\n{before}}} > /dev/null\n"
    flags = 'set -eu\n[ -z "${BASH:-}" ] || set -E -o pipefail\n' if strict else ""
    return (
        f"set -a\n{flags}{before}set +e\nheadrace_after() {{\ntrap - TERM\n{flags}{after}:\n}}\n"
        f"trap 'headrace_after; exit 143' TERM\n{command}\nheadrace_status=$?\nheadrace_after\nexit $headrace_status\n"
    )


def inner_text(mode: Mode, program: str, *, ready: str = "", done: str = "") -> str:
    """Shell text inside the instance, on the lead; `ready` and `done` are commands before and after the program."""
    if mode is Mode.INTERACTIVE:
        program = 'trap "exit 0" TERM HUP\nsleep infinity &\nwait\n'
    return f"export fluxsocket=$FLUX_URI\n{ready}{program}headrace_status=$?\n{done}exit $headrace_status\n"
