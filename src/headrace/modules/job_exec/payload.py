"""The jobspec that a start carries to the agent, and its environment by name where several jobs have the same.

`job_exec_node` imports this with the first start: a broker that has run no job does without the readers of jobspecs
and of environments in its memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.agent.environments import Named
from headrace.spec import jobspec as js

if TYPE_CHECKING:
    from headrace.process.operations import Environment


class Payloads:
    """The payloads of one broker's starts. Environments that several jobs have are files below `rundir`."""

    def __init__(self, rundir: str) -> None:
        self._bare = js.Bare()
        self._environments = Named(rundir)

    def of(self, jobspec: dict[str, Any]) -> tuple[dict[str, Any], Environment | None]:
        """Return `jobspec` and `environment` of a start: a bare jobspec and what names its environment, or the whole
        jobspec and None."""
        named = self._environments.name(js.environment(jobspec))
        return (jobspec, None) if named is None else (self._bare.of(jobspec), named)

    def clear(self) -> None:
        """Remove the files of environments, when no job is started any more."""
        self._environments.clear()
