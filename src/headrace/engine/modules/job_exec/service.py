"""The execution service: TreeExec on each broker, and the leader of all jobs on rank 0."""

from __future__ import annotations

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.modules.job_exec.node import TreeExec
from headrace.engine.modules.job_exec.settings import KEYS, WITHOUT_EFFECT, Settings
from headrace.formats.spec.requests.execution import JOB_EXEC_NODE

NAME = "job-exec"


def check(ctx: ModuleContext, args: list[str]) -> None:
    """Raise RpcError(EINVAL) for invalid arguments.

    This is checked before a module is reloaded, because the reload ends the running jobs.
    """
    if ctx.rank == 0:
        only(ctx, args, known=KEYS, without_effect=WITHOUT_EFFECT)
        Settings(ctx.config, args)


def load(ctx: ModuleContext, args: list[str]) -> None:
    node = TreeExec(ctx)
    if ctx.rank == 0:
        # Imported here to save memory on the other ranks.
        from headrace.engine.modules.job_exec.leader import Leader

        Leader(ctx, node, args)
    else:
        ctx.service(NAME, node.methods(), requests=JOB_EXEC_NODE)
