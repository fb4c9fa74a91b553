"""The command `tools/kube/kube`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from . import build, cluster, fluxqueue, operator, places, program
from .cluster import Cluster
from .errors import KubeError


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kube", description="A real Kubernetes on this machine, for tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    builds = commands.add_parser("build", help="build the programs, once")
    builds.add_argument("module", nargs="*", default=list(build.TESTED))
    builds.add_argument("--every", action="store_true", help="all modules, also the versions that only a soak tests")
    up = commands.add_parser("up", help="start a cluster")
    up.add_argument("name")
    up.add_argument("--no-node", dest="nodes", action="store_const", const=0, default=1, help="the control plane alone")
    up.add_argument("--nodes", type=int, default=1, help="nodes with real containers (default: 1)")
    up.add_argument("--again", action="store_true", help="only load the images where the cluster is up already")
    up.add_argument("--load", action="append", default=[], type=Path, metavar="ARCHIVE", help="an image for the nodes")
    for word, said in {
        "down": "end a cluster and remove all of it",
        "shell": "a shell with KUBECONFIG set, in the cluster's network",
        "fluxqueue": "start the cluster queue in a cluster, anew if it runs",
        "env": "the lines that set KUBECONFIG and PATH for your shell",
    }.items():
        commands.add_parser(word, help=said).add_argument("name")
    load = commands.add_parser("load", help="import OCI archives into a cluster's nodes")
    load.add_argument("name")
    load.add_argument("archive", nargs="+", type=Path)
    kubectl = commands.add_parser("kubectl", help="run kubectl against a cluster")
    kubectl.add_argument("name")
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER)
    operator = commands.add_parser("operator", help="start Headrace's operator in a cluster, anew if it runs")
    operator.add_argument("name")
    operator.add_argument("--view-image", default="local/headrace-view:1", help="(default: %(default)s)")
    restart = commands.add_parser("restart", help="end a component and start it again")
    restart.add_argument("name")
    restart.add_argument("component")
    logs = commands.add_parser("logs", help="the end of a component's log, or the components' names")
    logs.add_argument("name")
    logs.add_argument("component", nargs="?")
    commands.add_parser("status", help="the clusters of this machine")
    return parser


def _up(options: argparse.Namespace) -> None:
    began = time.monotonic()
    if options.again and cluster.is_up(options.name):
        for archive in options.load:
            Cluster.named(options.name).load(archive)
        return
    found = Cluster.up(options.name, options.nodes, options.load)
    print(f"cluster {found.name} is up after {time.monotonic() - began:.1f} s: {found.server}")
    print(f"export KUBECONFIG={found.kubeconfig}")


def _shell(found: Cluster, program: str) -> None:
    os.environ["KUBECONFIG"] = str(found.kubeconfig)
    os.environ["PATH"] = f"{build.built('kubernetes')}:{os.environ['PATH']}"
    command = [*found.box.entering("net"), program]
    os.execvp(command[0], command)


def _run(options: argparse.Namespace) -> None:
    if options.command == "build":
        build.fetch_go()
        for module in sorted(build.modules()) if options.every else options.module:
            print(build.build(module))
    elif options.command == "up":
        _up(options)
    elif options.command == "down":
        if not places.state(options.name).exists():
            raise KubeError(f"no cluster {options.name}")
        cluster.down(options.name)
    elif options.command == "status":
        for name, said in cluster.listed():
            print(f"{name}: {said}")
    else:
        _with_cluster(Cluster.named(options.name), options)


def _with_cluster(found: Cluster, options: argparse.Namespace) -> None:
    if options.command == "load":
        for archive in options.archive:
            print(*found.load(archive), sep="\n")
    elif options.command == "kubectl":
        command = found.kubectl_command(*options.arguments)
        os.execv(command[0], command)
    elif options.command == "operator":
        operator.start(found, options.view_image)
    elif options.command == "fluxqueue":
        fluxqueue.start(found)
    elif options.command == "restart":
        # A control plane's part that is asked to end waits a minute for those who watch it.
        is_ours = options.component in ("operator", "fluxqueue")
        found.box.stop(options.component, signal.SIGTERM if is_ours else signal.SIGKILL)
        found.box.restart(options.component)
    elif options.command == "shell":
        _shell(found, os.environ.get("SHELL", "/bin/sh"))
    elif options.command == "env":
        path = f"{build.built('kubernetes')}:{Path(program.headrace()).parent}"
        print(f"export KUBECONFIG={found.kubeconfig} PATH={path}:$PATH")
    elif options.component is None:
        print(*sorted(path.stem for path in (found.box.state / "logs").iterdir()), sep="\n")
    else:
        sys.stdout.write(found.box.log(options.component, 20000))


def main() -> int:
    """Run the command; its exit status."""
    try:
        _run(_arguments().parse_args())
    except KubeError as exc:
        print(f"kube: {exc}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    return 0
