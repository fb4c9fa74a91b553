"""The job-info module: the name under which RFC 41 is loaded, listed and unloaded.

The service itself runs where the job store is, in the job manager (job_manager/info.py), and so sends no event twice.
"""

from __future__ import annotations

from headrace.broker.module.args import only
from headrace.broker.module.context import ModuleContext

NAME = "job-info"


def load(ctx: ModuleContext, args: list[str]) -> None:
    """Nothing to do: the job manager provides the service."""
    only(ctx, args)
