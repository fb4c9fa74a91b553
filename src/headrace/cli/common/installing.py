"""What commands share that install a program on Kubernetes or remove it: options of removal, a notice about images."""

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
    """Add the options that choose a cluster, and how it is removed from there."""
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="How to reach the cluster")
    parser.add_argument("--context", default="", metavar="NAME", help="The context of the kubeconfig")
    parser.add_argument("--dry-run", action="store_true", help="Print what would be removed, and change nothing")
    parser.add_argument(
        "--timeout", default="5m", metavar="DURATION", help="How long it may take until all is gone (default: 5m)"
    )
    parser.add_argument("--json", action="store_true", help="Print JSON at the end")
    # It is found in whichever namespace it is.
    parser.set_defaults(namespace="")


def removed(
    options: Namespace,
    program: str,
    component: str,
    declared: Callable[[], List[Dict[str, Any]]],
    uninstall: Callable[[Removal], Awaitable[None]],
) -> int:
    """Run `uninstall`, the removal of the program `component` by the command `program`; its exit status.

    Raises CommandError.
    """
    from headrace.cli.mini.kube import connected

    try:
        timeout = duration.parse(options.timeout)
    except duration.DurationError as exc:
        raise CommandError(f"--timeout: {exc}") from None

    def said(line: str) -> None:
        if not options.json:
            print(line, flush=True)

    def tell(line: str) -> None:
        sys.stderr.write(f"{program.replace(' ', '-')}: {line}\n")
        sys.stderr.flush()

    async def act(api: Api, namespace: str) -> int:
        from headrace.k8s.packaging.removal import Removal, TooLongError

        removal = Removal(api, component, declared(), said, tell, options.dry_run, timeout)
        late = ""
        try:
            await uninstall(removal)
        except TooLongError as exc:
            late = str(exc)
        for one in removal.remaining:
            said(f"left: {one}")
        if not (removal.deleted or removal.released or removal.remaining or late):
            said(f"nothing to remove: this cluster has no {component}")
        if options.json:
            print(json.dumps(_summary(removal, late), indent=2))
        if late:
            hint = f"type `{program} uninstall` again to go on"
            raise CommandError(f"not gone after {options.timeout}: {late}; {hint}")
        return 0

    try:
        return connected(options, act)
    except KeyboardInterrupt:
        tell(f"broken off: type `{program} uninstall` again to go on")
        return 130


def _summary(removal: Removal, late: str) -> Dict[str, Any]:
    """What was removed as JSON has it."""
    found: Dict[str, Any] = {"dryRun": removal.dry_run}
    for name, items in (("deleted", removal.deleted), ("released", removal.released)):
        found[name] = [{"kind": one.kind.kind, "namespace": one.namespace, "name": one.name} for one in items]
    found["left"] = [{"objects": list(one.objects), "why": one.why} for one in removal.remaining]
    found["waitedFor"] = late or None
    return found


def notice_unpublished(*options: str) -> None:
    """Write one line to standard error unless this version is a release. `options` name the images that are defaults
    (`--image`); none writes nothing.
    """
    from headrace.k8s.packaging import images

    if options and not images.is_release():
        sys.stderr.write(
            "headrace: this is a development version, whose images are not published: build them with `make images`, "
            f"push them to a registry of yours, and name them with {' and '.join(options)}\n"
        )
