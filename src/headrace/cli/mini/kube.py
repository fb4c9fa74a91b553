"""Options, connection, errors and progress of the `headrace mini` commands that talk to Kubernetes."""

from __future__ import annotations

from headrace.cli.common.arguments import namespace, object_name
from headrace.cli.common.errors import CommandError, missing_extra
from headrace.cli.mini.program import in_its_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Callable, Container, Coroutine, Dict

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.api import Api


# How help texts name clusters that are not MiniClusters.
OTHERS = "job/NAME, jobset/NAME, trainjob/NAME"


def add_cluster(parser: Parser) -> None:
    """Add the options that choose a Kubernetes cluster and a namespace in it."""
    parser.add_argument("-n", "--namespace", type=namespace, metavar="NAME", help="Namespace (default: the context's)")
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="The kubeconfig file to use")
    parser.add_argument("--context", default="", metavar="NAME", help="The context of the kubeconfig to use")


def add_name(parser: Parser, with_kinds: bool = False) -> None:
    """Add the argument NAME.

    With `with_kinds` it may also be a labelled Job, or the object that owns such Jobs.
    """
    others = f", or {OTHERS}" if with_kinds else ""
    parser.add_argument("name", type=object_name, metavar="NAME", help=f"Name of the MiniCluster{others}")


def connected(options: Namespace, act: Callable[[Api, str], Coroutine[Any, Any, int]]) -> int:
    """Run `act(api, namespace)` with a connection to the chosen cluster, return its status.

    Raises CommandError.
    """
    try:
        import aiohttp  # noqa: F401 - only whether it is installed
    except ImportError as exc:
        raise missing_extra("Kubernetes", "kube", exc) from None
    import asyncio

    from headrace.flux_jobs.client.containers import NotRunningError
    from headrace.k8s.client.pod_exec import BrokenExecError
    from headrace.k8s.runtime import credentials
    from headrace.k8s.runtime.api import Api, ApiError, Unreachable
    from headrace.minicluster.client.apply import FIELD_MANAGER, ConflictError
    from headrace.minicluster.client.clusters import EndedError, NotFoundError, TooLargeError

    async def run() -> int:
        cluster = credentials.find(options.kubeconfig, options.context)
        async with Api(cluster, manager=FIELD_MANAGER) as api:
            return await act(api, options.namespace or cluster.namespace)

    try:
        return asyncio.run(run())
    except (NotFoundError, EndedError, TooLargeError, ConflictError, NotRunningError) as exc:
        raise CommandError(in_its_words(str(exc))) from None
    except (credentials.CredentialsError, BrokenExecError) as exc:
        raise CommandError(str(exc)) from None
    except Unreachable as exc:
        hint = "check that the cluster runs, and that KUBECONFIG, --kubeconfig or --context select the right one"
        raise CommandError(f"{exc}: {hint}") from None
    except ApiError as exc:
        hint = " (the cluster does not accept the credentials of the kubeconfig)" if exc.status == 401 else ""
        raise CommandError(f"{exc.message or exc.reason or exc.status}{hint}") from None


async def follow_until(
    api: Api, cluster: Dict[str, Any], phases: Container[str], say: Callable[[str], None]
) -> Dict[str, Any]:
    """Wait until the cluster is in one of `phases` and return it; `say` gets a line per change.

    Raises CommandError if the cluster is deleted, ApiError.
    """
    from headrace.flux_jobs.client.jobs import as_minicluster, with_warning
    from headrace.k8s.objects.kinds import MINICLUSTERS
    from headrace.minicluster.client import clusters as client
    from headrace.minicluster.operator.objects import KINDS

    kind = KINDS[cluster.get("kind", MINICLUSTERS.kind)]
    metadata, last_line = cluster["metadata"], ""

    def tell(line: str) -> None:
        nonlocal last_line
        if line != last_line:
            say(line)
            last_line = line

    def lost(why: str) -> None:
        tell(f"{why}: retrying")

    async for found in client.follow(api, metadata["namespace"], metadata["name"], lost, kind):
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            raise CommandError(f"{kind.kind} {metadata['name']} was deleted")
        if kind is not MINICLUSTERS:
            found = await with_warning(api, as_minicluster(found))
        tell(client.progress(found))
        if client.status_of(found).get("phase") in phases:
            return found
    return cluster
