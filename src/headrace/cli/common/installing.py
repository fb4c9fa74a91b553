"""Shared parts of commands that install a program on Kubernetes or remove it."""

from __future__ import annotations

import json
import sys

from headrace.cli.common.errors import CommandError
from headrace.formats.spec import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Awaitable, Callable, Dict, List

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.packaging.removal import Removal
    from headrace.k8s.runtime.api import Api


def add_to(parser: Parser) -> None:
    """Add the options that choose a cluster and control the removal."""
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="The kubeconfig file to use")
    parser.add_argument("--context", default="", metavar="NAME", help="The context of the kubeconfig to use")
    parser.add_argument("--dry-run", action="store_true", help="Print what would be removed, and change nothing")
    parser.add_argument(
        "--timeout", default="5m", metavar="DURATION", help="Stop waiting for the removal after this time (default: 5m)"
    )
    parser.add_argument("--json", action="store_true", help="Print JSON at the end")
    # `connected` reads a namespace. The removal finds the program in every namespace.
    parser.set_defaults(namespace="")


def removed(
    options: Namespace,
    program: str,
    component: str,
    declared: Callable[[], List[Dict[str, Any]]],
    uninstall: Callable[[Removal], Awaitable[None]],
) -> int:
    """Run `uninstall`, which removes `component`, for the command `program`, and return the exit status.

    Raises CommandError.
    """
    from headrace.cli.mini.kube import connected

    try:
        timeout = duration.parse(options.timeout)
    except duration.DurationError as exc:
        raise CommandError(f"--timeout: {exc}") from None

    def report(line: str) -> None:
        if not options.json:
            print(line, flush=True)

    def notify(line: str) -> None:
        sys.stderr.write(f"{program.replace(' ', '-')}: {line}\n")
        sys.stderr.flush()

    async def act(api: Api, namespace: str) -> int:
        from headrace.k8s.packaging.removal import Removal, TooLongError

        removal = Removal(api, component, declared(), report, notify, options.dry_run, timeout)
        late = ""
        try:
            await uninstall(removal)
        except TooLongError as exc:
            late = str(exc)
        for one in removal.remaining:
            report(f"left: {one}")
        if not (removal.deleted or removal.released or removal.remaining or late):
            report(f"nothing to remove: this cluster has no {component}")
        if options.json:
            print(json.dumps(_summary(removal, late), indent=2))
        if late:
            hint = f"run `{program} uninstall` again to continue"
            raise CommandError(f"not removed after {options.timeout}: {late}; {hint}")
        return 0

    try:
        return connected(options, act)
    except KeyboardInterrupt:
        notify(f"interrupted: run `{program} uninstall` again to continue")
        return 130


def _summary(removal: Removal, late: str) -> Dict[str, Any]:
    """The result of the removal for `--json`."""
    found: Dict[str, Any] = {"dryRun": removal.dry_run}
    for name, items in (("deleted", removal.deleted), ("released", removal.released)):
        found[name] = [{"kind": one.kind.kind, "namespace": one.namespace, "name": one.name} for one in items]
    found["left"] = [{"objects": list(one.objects), "why": one.why} for one in removal.remaining]
    found["waitedFor"] = late or None
    return found


def notice_unpublished(*options: str) -> None:
    """Write a notice to standard error if this version is not a release.

    The default images of such a version are not published.

    `options` are the image options that were not given (`--image`); without any, nothing is written.
    """
    from headrace.k8s.packaging import images

    if options and not images.is_release():
        sys.stderr.write(
            "headrace: the images of this development version are not published: build them with `make images`, "
            f"push them to your registry, and name them with {' and '.join(options)}\n"
        )
