"""`headrace mini connect NAME [COMMAND...]`: a shell, or a command, in the instance of a MiniCluster on Kubernetes.

It runs in the lead's container, by `flux proxy` to the broker there, through the API server's `exec`: the right for
that (`create pods/exec`) is the user's own, the operator has none.
"""

from __future__ import annotations

import os

from headrace.cli.mini.kube import add_cluster, add_name, connected
from headrace.cli.mini.logs import add_pod
from headrace.cli.mini.program import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.kube.runtime.api import Api


def add_arguments(parser: Parser) -> None:
    add_cluster(parser)
    add_pod(parser)
    add_name(parser, with_kinds=True)
    command = parser.add_argument("command", metavar="COMMAND", nargs="...", help="Command (default: a shell)")
    # Else it would be named where NAME is missing.
    command.required = False


def main(options: Namespace) -> int:
    async def act(api: Api, namespace: str) -> int:
        from headrace.kube import client, containers, pod_exec

        chosen = await containers.choose(api, namespace, options.name, options.pod, options.group, options.container)
        cluster = await containers.cluster_of(api, chosen)
        pod = await containers.running_pod(api, chosen, cluster)
        if client.status_of(cluster).get("phase") not in ("Running", None):
            tell(f"{chosen.cluster} is {client.progress(cluster)}: its broker may not be up yet")
        words = options.command[1:] if options.command[:1] == ["--"] else options.command
        command = client.connect_command(cluster, words)
        terminal = not words and os.isatty(0) and os.isatty(1)
        name = pod["metadata"]["name"]
        return await pod_exec.run(api, namespace, name, chosen.of_pod, command, terminal=terminal)

    return connected(options, act)
