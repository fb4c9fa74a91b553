"""`headrace fluxqueue why NAME`: why a job waits, with the Events about it."""

from __future__ import annotations

from headrace.cli.fluxqueue import cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.api import Api


def add_arguments(parser: Parser) -> None:
    cluster.add_to(parser)
    cluster.add_name(parser)


def main(options: Namespace) -> int:
    return cluster.asked(options, _why)


async def _why(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.cluster_queue import client

    line = await client.found(api, namespace, options.name)
    events = [
        {
            "time": one.get("lastTimestamp") or one.get("eventTime"),
            "reason": one.get("reason"),
            "message": one["message"],
        }
        for one in await client.events_of(api, line.job)
    ]
    if options.json:
        cluster.print_json({**cluster.summary(line), "events": events})
        return
    spec, status = line.job["spec"], line.job.get("status") or {}
    place = f", position {'' if line.is_exact else '~'}{line.position}" if line.position else ""
    duration = f"{spec['duration']} s" if spec.get("duration") else "not known"
    told = {
        "state": status.get("state", "Held"),
        "queue": f"{spec.get('queue')}{place}",
        "reason": status.get("reason"),
        "estimate": status.get("estimatedStart"),
        "pods": str(spec.get("nodes", "")),
        "duration": duration,
        "queued": status.get("queuedAt"),
        "started": status.get("startedAt"),
        "ended": status.get("endedAt"),
        "nodes": client.nodes_of(line.job),
        "jobid": status.get("jobid"),
    }
    cluster.print_table([(name, value) for name, value in told.items() if value])
    for one in events:
        print(f"{one['time']}  {one['reason']}: {one['message']}")
