"""The payload of a start to the agent: the jobspec, and its environment by name if several jobs have the same.

`node` imports this file with the first start, so that a broker without jobs does not have the readers of jobspecs and
environments in its memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.engine.agent.environments import Named
from headrace.formats.spec import jobspec as js

if TYPE_CHECKING:
    from headrace.engine.process.operations import Environment


class Payloads:
    """The payloads of one broker's starts. Environments of several jobs are files below `rundir`."""

    def __init__(self, rundir: str) -> None:
        self._bare = js.Bare()
        self._environments = Named(rundir)

    def of(self, jobspec: dict[str, Any]) -> tuple[dict[str, Any], Environment | None]:
        """The `jobspec` and `environment` of a start: a jobspec without environment and the name of that, or the whole
        jobspec and None.
        """
        named = self._environments.name(js.environment(jobspec))
        return (jobspec, None) if named is None else (self._bare.of(jobspec), named)

    def clear(self) -> None:
        """Remove the files of environments, when no job can be started any more."""
        self._environments.clear()
