"""The execution service: the part of each broker, and on rank 0 the leader of all jobs."""

from __future__ import annotations

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.modules.job_exec.node import TreeExec
from headrace.engine.modules.job_exec.settings import KEYS, WITHOUT_EFFECT, Settings
from headrace.formats.spec.requests.execution import JOB_EXEC_NODE

NAME = "job-exec"


def check(ctx: ModuleContext, args: list[str]) -> None:
    """Raises RpcError(EINVAL) for wrong arguments. A reload would end the jobs that run."""
    if ctx.rank == 0:
        only(ctx, args, known=KEYS, without_effect=WITHOUT_EFFECT)
        Settings(ctx.config, args)


def load(ctx: ModuleContext, args: list[str]) -> None:
    node = TreeExec(ctx)
    if ctx.rank == 0:
        # Imported here, so that the other ranks need no memory for it.
        from headrace.engine.modules.job_exec.leader import Leader

        Leader(ctx, node, args)
    else:
        ctx.service(NAME, node.methods(), requests=JOB_EXEC_NODE)
