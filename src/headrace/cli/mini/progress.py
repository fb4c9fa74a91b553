"""The progress of a cluster on Kubernetes, line by line, until the phase that a command waits for."""

from __future__ import annotations

from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Container, Dict

    from headrace.k8s.runtime.api import Api


async def follow_until(
    api: Api, cluster: Dict[str, Any], phases: Container[str], say: Callable[[str], None]
) -> Dict[str, Any]:
    """The cluster when it is in one of `phases`; `say` gets a line for each change until then.

    Raises CommandError if it is deleted, ApiError.
    """
    from headrace.flux_jobs.client.jobs import as_minicluster, with_warning
    from headrace.k8s.objects.kinds import MINICLUSTERS
    from headrace.minicluster.client import clusters as client
    from headrace.minicluster.operator.objects import KINDS

    kind = KINDS[cluster.get("kind", MINICLUSTERS.kind)]
    metadata, told = cluster["metadata"], ""

    def tell(line: str) -> None:
        nonlocal told
        if line != told:
            say(line)
            told = line

    def lost(why: str) -> None:
        tell(f"{why}: trying again")

    async for found in client.follow(api, metadata["namespace"], metadata["name"], lost, kind):
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            raise CommandError(f"{kind.kind} {metadata['name']} was deleted")
        if kind is not MINICLUSTERS:
            found = await with_warning(api, as_minicluster(found))
        tell(client.progress(found))
        if client.status_of(found).get("phase") in phases:
            return found
    return cluster
