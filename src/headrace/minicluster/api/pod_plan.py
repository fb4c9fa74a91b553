"""The plan of pods: a JSON document that the operator puts into a ConfigMap and every pod reads.

It has no secrets (keys are in a Secret), and nothing in it depends on the namespace or on one pod: a pod determines its
own name and namespace. Every pod imports this file when it starts. To keep that fast, the imports of `make_pod_plan`
are inside the functions.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from .fields import Container, MiniCluster

# The folders of the plan, the keys and the view in a pod. The view's path does not depend on `mountPath`.
PLAN_FOLDER = "/flux_operator"
PLAN_FILE = "plan.json"
KEYS_FOLDER = "/flux_operator_keys"
VIEW = "/mnt/flux/view"

# The folder of the plan and the keys in a pod of a foreign object, such as a user's Job.
FOREIGN_FOLDER = "/mnt/headrace"

# Ports of a pod: the tree of brokers (TBON), the lead's channel to the operator, and the readiness probe (HTTP).
BROKER_PORT = 8050
CHANNEL_PORT = 8051
READY_PORT = 8052

# Environment variables of a pod: its namespace (set by the builders from the downward API), and its index in its Job
# (set by Kubernetes).
NAMESPACE_VARIABLE = "HEADRACE_POD_NAMESPACE"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"

# The file for the termination message, and the number of bytes that Kubernetes keeps of it.
TERMINATION_LOG = "/dev/termination-log"
TERMINATION_LIMIT = 4096
# Exit codes of a container that was killed by SIGKILL or SIGTERM: 128 + the signal.
KILLED = (137, 143)


class Sidecar(Struct, frozen=True, kw_only=True):
    """A container beside the container with the broker.

    It has a command, shell text before and after the command, and may wait for the broker's socket.
    """

    name: str
    before: str
    command: str
    after: str
    waits_for_socket: bool
    working_dir: str = ""


class Group(Struct, frozen=True, kw_only=True):
    """A group of pods with another template; `size` pods start. Their hosts are `<name>-<group>-<i>`."""

    name: str
    size: int
    max_size: int


class PodPlan(Struct, frozen=True, kw_only=True):
    """The plan of every pod in a MiniCluster.

    `archive` is a path or "". `wrap` has the words of `flux start --wrap`. `sidecars` are keyed by the container's
    index as text.

    In the plan of a labelled Job (`flux_jobs.operator.objects.plan`), the five shell texts are "", because the pod has
    the command. `tasks_per_node` is the number of tasks of its job on each node. `node_variables` names the variables
    whose values differ between pods.
    """

    name: str
    size: int
    # All hosts that may ever join, as a hostlist (RFC 29) by rank, and the host of rank 0.
    hosts: str
    lead: str
    # The address of a lead outside this MiniCluster (`tcp://HOST:PORT`); otherwise "".
    lead_connect: str = ""
    service: str
    domain: str
    # The quorum, the attributes and the configuration of the brokers.
    quorum: str
    attrs: dict[str, str]
    config: dict[str, Any]
    # A value of `plan.Mode`.
    mode: str
    # The five shell texts of `plan.Plan`.
    before: str
    lead_before: str
    follower_before: str
    initial_program: str
    after: str
    # `flux.environment`, for users who source flux-view.sh. A container's own variables are set in its environment.
    environment: dict[str, str]
    python_path: str = ""
    output_dir: str
    working_dir: str
    mount_path: str
    strict: bool = False
    quiet: bool = False
    timed: bool = False
    interactive: bool = False
    complete_workers: bool = False
    disable_socket: bool = False
    ignore_failure: bool = False
    # Whether Kubernetes replaces a pod whose container exits with 137 or 143, as under the default pod failure policy.
    replaces_killed: bool = False
    # Whether Kubernetes restarts the lead's container in place when it fails (restartPolicy OnFailure).
    restarts_lead: bool = False
    wrap: list[str] = []
    archive: str = ""
    sidecars: dict[str, Sidecar] = {}
    groups: list[Group] = []
    tasks_per_node: int = 0
    node_variables: list[str] = []


def encode(plan: PodPlan) -> str:
    """The plan as the text of `plan.json`; equal plans give equal text."""
    return msgspec.json.encode(plan, order="deterministic").decode()


def decode(text: str | bytes) -> PodPlan:
    """Parse the text of a plan. Raises ValueError (also msgspec's) if it is invalid."""
    return msgspec.json.decode(text, type=PodPlan)


def make_pod_plan(cluster: MiniCluster, *, domain: str = "cluster.local", known_hosts: str = "") -> PodPlan:
    """The plan of a valid MiniCluster's pods, in a Kubernetes cluster with this DNS domain.

    `known_hosts` is the hostlist of a running instance. Its hosts keep their ranks, new hosts are appended, and
    unwanted hosts at its end are removed.
    """
    from headrace.formats.spec.hostlist import first_host

    from .plan import make_plan, outside_lead

    plan = make_plan(cluster, with_groups=True)
    hosts, quorum = plan.hosts, plan.quorum
    if known_hosts and known_hosts != hosts:
        hosts, has_unwanted, count = _joined_hosts(known_hosts, hosts)
        if has_unwanted:
            # Unwanted hosts keep their ranks if wanted hosts follow, but a new lead must not wait for them.
            quorum = quorum or str(count)
    flux, spec = cluster.flux, cluster.spec
    remote = outside_lead(cluster)
    view = flux.container
    restarts = spec.pod is not None and spec.pod.restart_policy == "OnFailure"
    return PodPlan(
        name=cluster.name,
        size=spec.size,
        hosts=hosts,
        lead=first_host(hosts),
        lead_connect=f"tcp://{remote.address}:{remote.port}" if remote else "",
        service=(spec.network.headless_name if spec.network else "") or cluster.name,
        domain=domain,
        quorum=quorum,
        attrs=plan.attrs,
        config=_config(plan.config, flux.broker_config),
        mode=plan.mode.value,
        before=plan.before,
        lead_before=plan.lead_before,
        follower_before=plan.follower_before,
        initial_program=plan.initial_program,
        after=plan.after,
        environment=flux.environment,
        python_path=view.python_path if view else "",
        output_dir=plan.output_dir,
        working_dir=plan.working_dir,
        mount_path=view.mount_path if view else "/mnt/flux",
        strict=plan.strict,
        quiet=plan.quiet,
        timed=plan.timed,
        interactive=spec.interactive,
        complete_workers=flux.complete_workers,
        disable_socket=flux.disable_socket,
        ignore_failure=spec.ignore_failure,
        replaces_killed=spec.pod_failure_policy is None and not restarts,
        restarts_lead=restarts,
        wrap=[word for word in flux.wrap.replace(",", " ").split() if word],
        archive=spec.archive.path if spec.archive else "",
        sidecars=_sidecars(cluster),
        groups=[Group(name=one.name, size=one.size, max_size=max(one.size, one.max_size)) for one in spec.groups],
    )


@functools.lru_cache(maxsize=256)
def _joined_hosts(known_hosts: str, hosts: str) -> tuple[str, bool, int]:
    """The hosts of a running instance followed by new hosts, as a hostlist.

    Also returns whether the instance has unwanted hosts, and the number of wanted hosts. Cached, because the result is
    the same at each reconcile.
    """
    from headrace.formats.spec.hostlist import Hostlist

    known, wanted = list(Hostlist.parse(known_hosts)), list(Hostlist.parse(hosts))
    wanted_set = set(wanted)
    while known and known[-1] not in wanted_set:
        known.pop()
    # A dictionary removes duplicates and keeps the order.
    return str(Hostlist(dict.fromkeys([*known, *wanted]))), not wanted_set.issuperset(known), len(wanted)


def _config(config: dict[str, Any], broker_config: str) -> dict[str, Any]:
    """The brokers' configuration.

    The user's `[resource]` is used without `path`: that is a file with one R for all pods, but here each pod reports
    the resources that it finds. By default, the rank of a lost pod is drained, and the instance does not wait for pods
    that may start later.
    """
    from .plan import given_config

    given = given_config(broker_config) if broker_config else {}
    resource = {key: value for key, value in given.get("resource", {}).items() if key != "path"}
    headrace = {"drain-lost": True, "expects-late-nodes": False, **given.get("headrace", {})}
    return {**config, "headrace": headrace, **({"resource": resource} if resource else {})}


def _sidecars(cluster: MiniCluster) -> dict[str, Sidecar]:
    return {
        str(index): _sidecar(one, waits=not cluster.flux.no_wait_socket)
        for index, one in enumerate(cluster.spec.containers)
        if one is not cluster.runner and not one.no_wrap_entrypoint
    }


def _sidecar(container: Container, waits: bool) -> Sidecar:
    from .fields import Commands
    from .plan import one_line

    commands = container.commands or Commands()
    before = [text.rstrip() + "\n" for text in (commands.init, commands.service_pre) if text.strip()]
    return Sidecar(
        name=container.name,
        before="".join(before),
        command=one_line(container.command) if container.command.strip() else "",
        after=commands.post.rstrip() + "\n" if commands.post.strip() else "",
        waits_for_socket=waits,
        working_dir=container.working_dir,
    )
