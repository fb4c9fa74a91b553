"""The job-info module: the name by which the service of RFC 41 is loaded, listed and unloaded.

The service itself runs in the job manager (job_manager/info.py), which has the job store.
"""

from __future__ import annotations

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import ModuleContext

NAME = "job-info"


def load(ctx: ModuleContext, args: list[str]) -> None:
    """Does nothing, since the job manager provides the service."""
    only(ctx, args)
