"""The plan of the pods of a Job that is a cluster: that of a MiniCluster's pods, whose runner they have. Pure.

The command is not in the plan: it stays in the container, where the kubelet expands its references to variables.
"""

from __future__ import annotations

from headrace.minicluster.api.plan import DEFAULT_OUTPUT, TOPOLOGY, hosts_of
from headrace.minicluster.api.pod_plan import PodPlan
from headrace.minicluster.api.shell_text import Mode

from .cluster import OUR_MOUNTS, PROCS_VARIABLE, ForeignCluster
from .field import Field
from .options import Exit, Run

# Errors alone are logged: users read the output of their command, and brokers warn of names that do not resolve yet.
_LOG_LEVEL = "3"


def make_pod_plan(cluster: ForeignCluster, *, service: str, domain: str) -> PodPlan:
    """The plan of a cluster whose Job exists, so that its name is known.

    `service` is the Service that has the names of the pods, if the Job names none (`subdomain`), `domain` the DNS
    domain of the Kubernetes cluster.
    """
    part = cluster.parts[0]
    spec = Field(cluster.job)["spec"]
    pod = spec["template"]["spec"]
    procs = cluster.variables(lambda source: "").get(PROCS_VARIABLE) if cluster.run is Run.NODE else None
    honest = cluster.options.exit is Exit.HONEST
    quorum = {"broker.quorum": str(part.size)} if part.max_size > part.size else {}
    return PodPlan(
        name=part.job,
        size=part.size,
        hosts=hosts_of(part.job, part.max_size),
        lead=f"{part.job}-0",
        service=pod["subdomain"].text() or service,
        domain=domain,
        quorum=quorum.get("broker.quorum", ""),
        attrs={"log-stderr-level": _LOG_LEVEL, "log-stderr-mode": "local", "tbon.topo": TOPOLOGY, **quorum},
        config={
            "access": {"allow-guest-user": True, "allow-root-owner": True},
            "sched-fluxion-qmanager": {"queue-policy": cluster.queue_policy},
            # The rank of a pod that is lost is drained, and nothing waits for pods that may come later.
            "headrace": {"drain-lost": True, "expects-late-nodes": False},
        },
        mode=_mode(cluster).value,
        before="",
        lead_before="",
        follower_before="",
        initial_program="",
        after="",
        environment={} if procs is None else {PROCS_VARIABLE: procs},
        output_dir=DEFAULT_OUTPUT,
        working_dir="",
        mount_path=OUR_MOUNTS[0],
        interactive=cluster.interactive,
        # As under the pod failure policy that admission adds.
        replaces_killed=honest and not spec["podFailurePolicy"].given,
        # A pod of another index ends by itself where the Job needs the success of all.
        restarts_lead=not honest and pod["restartPolicy"].text() == "OnFailure" and spec["successPolicy"].given,
        tasks_per_node=cluster.tasks // cluster.size,
        node_variables=cluster.node_variables,
    )


def _mode(cluster: ForeignCluster) -> Mode:
    if cluster.interactive:
        return Mode.INTERACTIVE
    return Mode.LAUNCHER if cluster.run is Run.PROGRAM else Mode.SUBMIT
