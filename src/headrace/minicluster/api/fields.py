"""The fields of a MiniCluster (flux-framework.org/v1alpha2), with their defaults, as frozen records.

This one declaration is used everywhere: validation walks it, the plan reads it, the local runner and the Kubernetes
side share it. Attribute names are the API's names in snake case. As in the API, a default inside an object applies only
if the object is given: `flux` absent is None, `flux: {}` has a connect timeout of 5 s. Sizes are numbers of pods (or
brokers), times are seconds, quantities are Kubernetes quantities (text or whole numbers).
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

API_VERSION = "flux-framework.org/v1alpha2"
KIND = "MiniCluster"

INT64 = 2**63
MOST_ID = 2**31 - 1
# The limit of an Indexed Job (batch/v1 JobSpec, parallelism).
MOST_PODS = 100_000
DEFAULT_IMAGE = "ghcr.io/rse-ops/accounting:app-latest"
DEFAULT_VIEW_IMAGE = "ghcr.io/converged-computing/flux-view-ubuntu:tag-noble"
DEFAULT_VIEW_NAME = "flux-view"
DEFAULT_VIEW_PATH = "/mnt/flux"
DEFAULT_PORT = 8050
QUANTITY = re.compile(
    r"(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?\Z"
)

# Annotations of types for the schema: Meta.title is the format, which validation reads, too; Meta.extra_json_schema is
# for the CRD alone. The rules in `validate` and beside it check the same bounds.
Int64 = Annotated[int, Meta(title="int64")]
Quantity = Annotated[str, Meta(title="quantity")]
# A bool with a default that the API server writes into the stored object.
Switch = Annotated[bool, Meta(title="bool", extra_json_schema={"default": False})]
Natural = Annotated[int, Meta(title="int32", extra_json_schema={"minimum": 0})]
Positive = Annotated[int, Meta(title="int32", extra_json_schema={"minimum": 1})]
# A number of pods; and one for which 0 means the value of another field.
Size = Annotated[int, Meta(title="int32", extra_json_schema={"minimum": 1, "maximum": MOST_PODS})]
SizeOrDefault = Annotated[int, Meta(title="int32", extra_json_schema={"minimum": 0, "maximum": MOST_PODS})]
Natural64 = Annotated[int, Meta(title="int64", extra_json_schema={"minimum": 0})]
Port = Annotated[int, Meta(title="int32", extra_json_schema={"minimum": 1, "maximum": 65535})]
# A port for which 0 means the default.
PortOrDefault = Annotated[int, Meta(title="int32", extra_json_schema={"minimum": 0, "maximum": 65535})]
LogLevel = Annotated[int, Meta(title="int32", extra_json_schema={"minimum": 0, "maximum": 7})]
UserId = Annotated[int, Meta(title="int64", extra_json_schema={"minimum": 0, "maximum": MOST_ID})]

# The values of fields with a closed set of values; "" means not given.
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
RESTART_POLICIES = ("OnFailure", "Never")
DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default")
QUEUE_POLICIES = ("fcfs", "easy", "hybrid", "conservative")
PROC_MOUNTS = ("Default", "Unmasked")
SECCOMP_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
TOLERATION_OPERATORS = ("Exists", "Equal")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
GROUP_CHANGE_POLICIES = ("OnRootMismatch", "Always")
FAILURE_ACTIONS = ("FailJob", "Ignore", "Count")
EXIT_OPERATORS = ("In", "NotIn")
CONDITION_STATUSES = ("True", "False", "Unknown")


def _one_of(*values: str) -> Meta:
    return Meta(title="text", extra_json_schema={"enum": list(values)})


def _at_most(length: int) -> Meta:
    return Meta(title="text", extra_json_schema={"maxLength": length})


# These bounds let the API server estimate the cost of CEL rules; real files have far fewer.
MOST_CONTAINERS = 64
MOST_NAME = 63
MOST_GROUPS = 64


class Record(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of all objects in the schema."""


class SeLinuxOptions(Record, frozen=True):
    level: str = ""
    role: str = ""
    type: str = ""
    user: str = ""


class SeccompProfile(Record, frozen=True):
    type: Annotated[str, _one_of(*SECCOMP_TYPES)]
    localhost_profile: str = ""


class WindowsOptions(Record, frozen=True):
    gmsa_credential_spec: str = ""
    gmsa_credential_spec_name: str = ""
    host_process: bool | None = None
    run_as_user_name: str = ""


class Capabilities(Record, frozen=True):
    add: list[str] = []
    drop: list[str] = []


class SecurityContext(Record, frozen=True):
    """The security context of a container."""

    allow_privilege_escalation: bool | None = None
    capabilities: Capabilities | None = None
    privileged: bool | None = None
    proc_mount: Annotated[str, _one_of("", *PROC_MOUNTS)] | None = None
    read_only_root_filesystem: bool | None = None
    run_as_group: UserId | None = None
    run_as_non_root: bool | None = None
    run_as_user: UserId | None = None
    se_linux_options: SeLinuxOptions | None = None
    seccomp_profile: SeccompProfile | None = None
    windows_options: WindowsOptions | None = None


class Sysctl(Record, frozen=True):
    name: str
    value: str


class PodSecurityContext(Record, frozen=True):
    """The security context of a whole pod."""

    fs_group: UserId | None = None
    fs_group_change_policy: Annotated[str, _one_of("", *GROUP_CHANGE_POLICIES)] | None = None
    run_as_group: UserId | None = None
    run_as_non_root: bool | None = None
    run_as_user: UserId | None = None
    se_linux_options: SeLinuxOptions | None = None
    seccomp_profile: SeccompProfile | None = None
    supplemental_groups: list[UserId] = []
    sysctls: list[Sysctl] = []
    windows_options: WindowsOptions | None = None


class Resources(Record, frozen=True):
    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}


class Commands(Record, frozen=True):
    """Shell text for the steps of a start; `plan` defines their order."""

    init: str = ""
    pre: str = ""
    broker_pre: str = ""
    worker_pre: str = ""
    service_pre: str = ""
    prefix: str = ""
    script: str = ""
    post: str = ""


class LifeCycle(Record, frozen=True):
    post_start_exec: str = ""
    pre_stop_exec: str = ""


class SecretKey(Record, frozen=True):
    name: str
    key: str


class Volume(Record, frozen=True):
    """One volume of a container; of csiDriver, secretName, emptyDir, hostPath, ... the first one given is its
    source.
    """

    path: str = ""
    read_only: Switch = False
    csi_driver: str = ""
    csi_driver_attributes: dict[str, str] = {}
    secret_name: str = ""
    empty_dir: Switch = False
    empty_dir_medium: str = ""
    empty_dir_size_limit: str = ""
    host_path: str = ""
    config_map_name: str = ""
    items: dict[str, str] = {}
    claim_name: str = ""


class Container(Record, frozen=True):
    """A sidecar, a service, or (runFlux) the container in which the broker and the job run."""

    name: Annotated[str, _at_most(MOST_NAME)] = ""
    image: str = DEFAULT_IMAGE
    image_pull_policy: Annotated[str, _one_of("", *PULL_POLICIES)] = ""
    image_pull_secret: str = ""
    pull_always: Switch = False
    command: str = ""
    commands: Commands | None = None
    working_dir: str = ""
    environment: dict[str, str] = {}
    secrets: dict[str, SecretKey] = {}
    run_flux: bool = False
    launcher: bool = False
    batch: bool = False
    batch_raw: bool = False
    logs: str = ""
    no_wrap_entrypoint: bool = False
    ports: list[Port] = []
    life_cycle: LifeCycle | None = None
    resources: Resources | None = None
    security_context: SecurityContext | None = None
    volumes: dict[str, Volume] = {}


class LeadBroker(Record, frozen=True):
    """The broker of another MiniCluster that leads this one; a port of 0 is the default, as in the Flux Operator."""

    address: str
    name: str
    size: Size
    port: PortOrDefault = DEFAULT_PORT

    def __post_init__(self) -> None:
        if self.port == 0:
            force_setattr(self, "port", DEFAULT_PORT)


class BurstCluster(Record, frozen=True):
    """Hosts of another cluster that may join; `size` 0 means `spec.size`."""

    name: str = ""
    size: SizeOrDefault = 0


class Bursting(Record, frozen=True):
    clusters: list[BurstCluster] = []
    hostlist: str = ""
    lead_broker: LeadBroker | None = None


class View(Record, frozen=True):
    """`flux.container`: the container that adds Flux to the user's image.

    An empty name, image or path is the default, as in the Flux Operator.
    """

    name: str = DEFAULT_VIEW_NAME
    image: str = DEFAULT_VIEW_IMAGE
    disable: Switch = False
    image_pull_secret: str = ""
    mount_path: str = DEFAULT_VIEW_PATH
    pull_always: Switch = False
    python_path: str = ""
    resources: Resources | None = None
    security_context: SecurityContext | None = None
    working_dir: str = ""

    def __post_init__(self) -> None:
        defaults = {"name": DEFAULT_VIEW_NAME, "image": DEFAULT_VIEW_IMAGE, "mount_path": DEFAULT_VIEW_PATH}
        for attribute, default in defaults.items():
            if not getattr(self, attribute):
                force_setattr(self, attribute, default)


class SchedulerOptions(Record, frozen=True):
    queue_policy: Annotated[str, _one_of("", *QUEUE_POLICIES)] = ""
    simple: bool = False


class Flux(Record, frozen=True):
    arch: str = ""
    broker_config: str = ""
    bursting: Bursting | None = None
    complete_workers: bool = False
    connect_timeout: str = "5s"
    container: View | None = None
    curve_cert: str = ""
    disable_socket: bool = False
    environment: dict[str, str] = {}
    log_level: LogLevel = 6
    minimal_service: bool = False
    munge_secret: str = ""
    no_wait_socket: bool = False
    option_flags: str = ""
    scheduler: SchedulerOptions | None = None
    submit_command: str = ""
    topology: str = ""
    wrap: str = ""


class Logging(Record, frozen=True):
    debug: Switch = False
    quiet: Switch = False
    strict: Switch = False
    timed: Switch = False
    zeromq: Switch = False


class Network(Record, frozen=True):
    disable_affinity: bool = False
    headless_name: str = ""


class Toleration(Record, frozen=True):
    effect: Annotated[str, _one_of("", *TAINT_EFFECTS)] = ""
    key: str = ""
    operator: Annotated[str, _one_of("", *TOLERATION_OPERATORS)] = ""
    value: str = ""


class Pod(Record, frozen=True):
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    automount_service_account_token: bool = False
    dns_policy: Annotated[str, _one_of("", *DNS_POLICIES)] = ""
    host_ipc: bool = field(name="hostIPC", default=False)
    host_pid: bool = field(name="hostPID", default=False)
    node_affinity: dict[str, list[str]] = {}
    node_selector: dict[str, str] = {}
    resources: dict[str, Quantity] = {}
    restart_policy: Annotated[str, _one_of("", *RESTART_POLICIES)] = ""
    runtime_class_name: str = ""
    scheduler_name: str = ""
    security_context: PodSecurityContext | None = None
    service_account_name: str = ""
    tolerations: list[Toleration] = []


class Archive(Record, frozen=True):
    path: str = ""


# --- fields that v1alpha2 of the Flux Operator does not have; without one of them, that operator's behaviour applies


class ExitCodes(Record, frozen=True):
    """`onExitCodes` of a pod failure rule (batch/v1 PodFailurePolicyOnExitCodesRequirement)."""

    operator: Annotated[str, _one_of(*EXIT_OPERATORS)]
    values: list[int]
    container_name: str = ""


class PodCondition(Record, frozen=True):
    """An item of `onPodConditions` of a pod failure rule (batch/v1 PodFailurePolicyOnPodConditionsPattern)."""

    type: str
    status: Annotated[str, _one_of(*CONDITION_STATUSES)] = "True"


class PodFailureRule(Record, frozen=True):
    action: Annotated[str, _one_of(*FAILURE_ACTIONS)]
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: list[PodCondition] = []


class PodFailurePolicy(Record, frozen=True):
    """What a failed pod means for the whole MiniCluster (batch/v1 PodFailurePolicy); overrides the default rules."""

    rules: list[PodFailureRule] = []


class Autoscale(Record, frozen=True):
    """The queue decides the size, between `min_size` and `spec.max_size`; pods are removed after `idle_seconds`."""

    min_size: Positive = 1
    idle_seconds: Natural = 60


class Group(Record, frozen=True):
    """Further pods with another template, `NAME-GROUP-0` and on, whose brokers join as followers.

    `max_size` 0 means `size`; `image` "" means that of the container with Flux.
    """

    name: Annotated[str, _at_most(MOST_NAME)]
    size: Size = 1
    max_size: SizeOrDefault = 0
    image: str = ""
    resources: Resources | None = None
    environment: dict[str, str] = {}
    pod: Pod | None = None
    volumes: dict[str, Volume] = {}


class Spec(Record, frozen=True):
    containers: list[Container]
    services: list[Container] = []
    size: Size = 1
    min_size: Natural = 0
    max_size: SizeOrDefault = 0
    tasks: Natural = 1
    interactive: Switch = False
    cleanup: Switch = False
    backoff_limit: Natural | None = None
    deadline_seconds: Natural64 = 31_500_000
    job_labels: dict[str, str] = {}
    share_process_namespace: bool = False
    archive: Archive | None = None
    flux: Flux | None = None
    logging: Logging | None = None
    network: Network | None = None
    pod: Pod | None = None
    # Fields that the Flux Operator does not have.
    suspend: bool = False
    managed_by: Annotated[str, _at_most(MOST_NAME)] = ""
    ttl_seconds_after_finished: Natural | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    ignore_failure: bool = False
    start_timeout_seconds: Positive | None = None
    autoscale: Autoscale | None = None
    groups: list[Group] = []


class MiniCluster(Struct, frozen=True, kw_only=True):
    """A valid MiniCluster: its name, namespace ("": not given) and spec."""

    name: str
    spec: Spec
    namespace: str = ""

    @property
    def flux(self) -> Flux:
        """`spec.flux`, or its meaning if absent: no options (and so no connect timeout)."""
        return self.spec.flux or Flux(connect_timeout="")

    @property
    def logging(self) -> Logging:
        return self.spec.logging or Logging()

    @property
    def runner(self) -> Container:
        """The container in which the broker and the job run: the one marked runFlux, or the only one."""
        containers = self.spec.containers
        return containers[0] if len(containers) == 1 else next(one for one in containers if one.run_flux)
