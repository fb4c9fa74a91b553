"""The commands of `headrace mini` that read the log of a pod on Kubernetes or run a command in it.

`logs NAME` prints the log of a pod. `connect NAME [COMMAND...]` opens a shell or runs a command in the lead's container
through `flux proxy` to the broker there; with `--web` it forwards a local port to the page of the instance's service.
Both use the API server with the user's own rights (`create pods/exec`, `create pods/portforward`). The operator has
neither of these rights.
"""

from __future__ import annotations

import os

from headrace.cli.common.arguments import port
from headrace.cli.common.errors import CommandError
from headrace.cli.mini.kube import add_cluster, add_name, connected
from headrace.cli.mini.program import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.api import Api


def add_pod(parser: Parser) -> None:
    """Add the options that choose a pod and a container of it."""
    parser.add_argument(
        "-p", "--pod", type=int, default=0, metavar="INDEX", help="Index of the pod (default: the lead)"
    )
    parser.add_argument("-g", "--group", default="", metavar="NAME", help="Choose the pod from this group")
    parser.add_argument("-c", "--container", default="", metavar="NAME", help="Container (default: the one with Flux)")


def _logs_arguments(parser: Parser) -> None:
    add_cluster(parser)
    add_pod(parser)
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="Follow the log until the container ends, also in a pod that replaces this one",
    )
    add_name(parser, with_kinds=True)


def _logs(options: Namespace) -> int:
    async def act(api: Api, namespace: str) -> int:
        from headrace.flux_jobs.client import containers

        chosen = await containers.choose(api, namespace, options.name, options.pod, options.group, options.container)
        async for chunk in containers.logs(api, chosen, options.follow, tell):
            _write(chunk)
        return 0

    return connected(options, act)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _connect_arguments(parser: Parser) -> None:
    add_cluster(parser)
    add_pod(parser)
    parser.add_argument(
        "--web",
        action="store_true",
        help="Forward a port to the service of [headrace.api] in flux.brokerConfig, and print its address",
    )
    parser.add_argument(
        "--local-port",
        type=port,
        default=0,
        metavar="PORT",
        help="With --web: the port on this machine (default: any free one)",
    )
    add_name(parser, with_kinds=True)
    command = parser.add_argument("command", metavar="COMMAND", nargs="...", help="Command (default: a shell)")
    # If it were required, the error for a missing NAME would name COMMAND, too.
    command.required = False


async def _open(api: Api, namespace: str, pod: str, container: str, cluster: Any, local_port: int) -> int:
    """Print the page's local address and forward connections to the page until SIGINT or SIGTERM."""
    import asyncio
    import json
    import signal
    from urllib.parse import urlsplit

    from headrace.k8s.client import pod_exec, port_forward
    from headrace.minicluster.client import clusters as client

    status, printed = await pod_exec.output(api, namespace, pod, container, client.service_command(cluster))
    if status:
        return status
    # The command prints a line for each service of the user. The instance's own service comes first.
    found = json.loads(printed.splitlines()[0])
    address = urlsplit(found.get("login") or found["url"])
    if "socket" in found or address.port is None:
        raise CommandError(
            f"the service of {pod} listens at the socket {found.get('socket')}, not at a port to forward"
        )
    try:
        server = await port_forward.listen(api, namespace, pod, address.port, local_port, tell)
    except OSError as exc:
        raise CommandError(f"--local-port {local_port}: {exc.strerror}") from None
    here = server.sockets[0].getsockname()[1]
    print(f"Open {address._replace(netloc=f'127.0.0.1:{here}').geturl()}", flush=True)
    ended = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    await ended.wait()
    server.close()
    return 0


def _connect(options: Namespace) -> int:
    async def act(api: Api, namespace: str) -> int:
        from headrace.flux_jobs.client import containers
        from headrace.k8s.client import pod_exec
        from headrace.minicluster.client import clusters as client

        chosen = await containers.choose(api, namespace, options.name, options.pod, options.group, options.container)
        cluster = await containers.cluster_of(api, chosen)
        pod = await containers.running_pod(api, chosen, cluster)
        if client.status_of(cluster).get("phase") not in ("Running", None):
            tell(f"{chosen.cluster} is {client.progress(cluster)}: its broker may not be running yet")
        if options.web:
            return await _open(api, namespace, pod["metadata"]["name"], chosen.of_pod, cluster, options.local_port)
        words = options.command[1:] if options.command[:1] == ["--"] else options.command
        command = client.connect_command(cluster, words)
        terminal = not words and os.isatty(0) and os.isatty(1)
        name = pod["metadata"]["name"]
        return await pod_exec.run(api, namespace, name, chosen.of_pod, command, terminal=terminal)

    return connected(options, act)


# For each command, the function that adds its arguments and the function that runs it.
_COMMANDS = {
    "logs": (_logs_arguments, _logs),
    "connect": (_connect_arguments, _connect),
}


def add_arguments(parser: Parser, name: str) -> None:
    _COMMANDS[name][0](parser)


def main(options: Namespace) -> int:
    return _COMMANDS[options.action][1](options)
