"""The fields of a MiniCluster (flux-framework.org/v1alpha2), with their defaults, as frozen records.

Validation, the plan, the local runner and the Kubernetes side all use this declaration. Attribute names are the API's
names in snake case. As in the API, a default inside an object applies only if the object is given: `flux` absent is
None, `flux: {}` has a connect timeout of 5 s. Sizes are numbers of pods (or brokers), times are seconds, quantities are
Kubernetes quantities (text or whole numbers).
"""

# This file does not import `annotations` from __future__: msgspec and `declarations` would each have to evaluate the
# annotations from text, which takes longer than importing this file.
import re
from typing import Annotated

from msgspec import Struct, field
from msgspec.structs import force_setattr

from headrace.k8s.objects.problems import Problem

from .declarations import Bounds, Effect, Format, Items, Length, OneOf, StoredDefault, Support

API_VERSION = "flux-framework.org/v1alpha2"
KIND = "MiniCluster"

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

# The values of a field that objects of other kinds have, too.
QUEUE_POLICIES = ("fcfs", "easy", "hybrid", "conservative")

# Bounds on containers, groups and names let the API server estimate the cost of CEL rules; real files have far fewer.
MOST_CONTAINERS = 64
MOST_GROUPS = 64
MOST_NAME = 63

_AS_A_JOB = "as many pods as a Job can have at a time"
Quantity = Annotated[str, Format.QUANTITY]
# A bool with a default that the API server writes into the stored object.
Switch = Annotated[bool, StoredDefault(False)]
Natural = Annotated[int, Bounds(0)]
Positive = Annotated[int, Bounds(1)]
# A number of pods. For the second type, 0 means the value of another field.
Size = Annotated[int, Bounds(1, MOST_PODS, reason=_AS_A_JOB)]
SizeOrDefault = Annotated[int, Bounds(0, MOST_PODS, reason=_AS_A_JOB)]
Natural64 = Annotated[int, Format.INT64, Bounds(0)]
Port = Annotated[int, Bounds(1, 65535)]
# A port for which 0 means the default.
PortOrDefault = Annotated[int, Bounds(0, 65535)]
LogLevel = Annotated[int, Bounds(0, 7, least_means="emergency", most_means="debug")]
UserId = Annotated[int, Format.INT64, Bounds(0, MOST_ID)]


class Record(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of all objects in the schema."""


class SeLinuxOptions(Record, frozen=True):
    level: Annotated[str, "SELinux level."] = ""
    role: Annotated[str, "SELinux role."] = ""
    type: Annotated[str, "SELinux type."] = ""
    user: Annotated[str, "SELinux user."] = ""


class SeccompProfile(Record, frozen=True):
    type: Annotated[str, "Kind of profile.", OneOf(("Localhost", "RuntimeDefault", "Unconfined"), optional=False)]
    localhost_profile: Annotated[str, "File of the profile on the node, with type Localhost."] = ""


class WindowsOptions(Record, frozen=True):
    gmsa_credential_spec: Annotated[str, "Credential specification of the group managed service account."] = ""
    gmsa_credential_spec_name: Annotated[str, "Name of that credential specification."] = ""
    host_process: Annotated[bool | None, "Run as a process of the host."] = None
    run_as_user_name: Annotated[str, "User name of the processes."] = ""


class Capabilities(Record, frozen=True):
    add: Annotated[list[str], "Capabilities to add."] = []
    drop: Annotated[list[str], "Capabilities to drop."] = []


class SecurityContext(Record, frozen=True):
    """The security context of a container."""

    allow_privilege_escalation: Annotated[bool | None, "Processes may gain more privileges than their parent."] = None
    capabilities: Annotated[Capabilities | None, "Capabilities to add and drop."] = None
    privileged: Annotated[bool | None, "Run privileged."] = None
    proc_mount: Annotated[str | None, "How /proc is mounted.", OneOf(("Default", "Unmasked"))] = None
    read_only_root_filesystem: Annotated[bool | None, "The container's own file system is read-only."] = None
    run_as_group: Annotated[UserId | None, "Group id of the processes."] = None
    run_as_non_root: Annotated[bool | None, "Refuse to run as root."] = None
    run_as_user: Annotated[UserId | None, "User id of the processes."] = None
    se_linux_options: Annotated[SeLinuxOptions | None, "SELinux labels."] = None
    seccomp_profile: Annotated[SeccompProfile | None, "Seccomp profile."] = None
    windows_options: Annotated[WindowsOptions | None, "Settings for Windows nodes."] = None


class Sysctl(Record, frozen=True):
    name: Annotated[str, "Name of the setting."]
    value: Annotated[str, "Its value."]


class PodSecurityContext(Record, frozen=True):
    """The security context of a whole pod."""

    fs_group: Annotated[UserId | None, "Group id that volumes belong to."] = None
    fs_group_change_policy: Annotated[
        str | None, "When the owners of a volume's files are changed.", OneOf(("OnRootMismatch", "Always"))
    ] = None
    run_as_group: Annotated[UserId | None, "Group id of the processes."] = None
    run_as_non_root: Annotated[bool | None, "Refuse to run as root."] = None
    run_as_user: Annotated[UserId | None, "User id of the processes."] = None
    se_linux_options: Annotated[SeLinuxOptions | None, "SELinux labels."] = None
    seccomp_profile: Annotated[SeccompProfile | None, "Seccomp profile."] = None
    supplemental_groups: Annotated[list[UserId], "Further group ids of the processes."] = []
    sysctls: Annotated[list[Sysctl], "Kernel settings of the pod."] = []
    windows_options: Annotated[WindowsOptions | None, "Settings for Windows nodes."] = None


class Resources(Record, frozen=True):
    limits: Annotated[dict[str, Quantity], "Most of each resource, by name."] = {}
    requests: Annotated[dict[str, Quantity], "What is set aside of each resource, by name."] = {}


class Commands(Record, frozen=True):
    """Shell text for the steps of a start; `plan` defines their order."""

    init: Annotated[str, "Runs first, on each pod."] = ""
    pre: Annotated[str, "Runs before the broker, on each pod."] = ""
    broker_pre: Annotated[str, "Runs before the broker, on the lead."] = ""
    worker_pre: Annotated[str, "Runs before the broker, on the followers."] = ""
    service_pre: Annotated[str, "Runs before the command of this container, if it is not the one that runs Flux."] = ""
    prefix: Annotated[str, "Words to put before the command that starts the job."] = ""
    script: Annotated[
        str, "A script to run instead of the command. $NAME is filled in before it runs; \\$NAME is its own."
    ] = ""
    post: Annotated[str, "Runs after the job."] = ""


class LifeCycle(Record, frozen=True):
    post_start_exec: Annotated[str, "Command to run when the container has started."] = ""
    pre_stop_exec: Annotated[str, "Command to run before the container is stopped."] = ""


class SecretKey(Record, frozen=True):
    name: Annotated[str, "Name of the Secret."]
    key: Annotated[str, "Key in the Secret."]


class Volume(Record, frozen=True):
    """A volume of a container.

    Its source is the first given field of csiDriver, secretName, emptyDir, hostPath, ...
    """

    path: Annotated[str, "The mount path in the container."] = ""
    read_only: Annotated[Switch, "Mount it read-only."] = False
    csi_driver: Annotated[str, "The CSI driver that provides the volume."] = ""
    csi_driver_attributes: Annotated[dict[str, str], "Attributes for the CSI driver."] = {}
    secret_name: Annotated[str, "The Secret whose keys become files of the volume."] = ""
    empty_dir: Annotated[Switch, "An empty folder, mounted at path (default: /dev/shm)."] = False
    empty_dir_medium: Annotated[str, "Memory: the empty folder is in memory."] = ""
    empty_dir_size_limit: Annotated[str, "The maximum size of the empty folder, a quantity such as 2Gi."] = ""
    host_path: Annotated[str, "A folder of the node."] = ""
    config_map_name: Annotated[str, "The ConfigMap whose keys become files of the volume."] = ""
    items: Annotated[dict[str, str], "Keys of the ConfigMap, each with its file name. Unset: all keys."] = {}
    claim_name: Annotated[str, "A PersistentVolumeClaim."] = ""


class Container(Record, frozen=True):
    """A sidecar, a service, or (runFlux) the container in which the broker and the job run."""

    name: Annotated[
        str,
        "Name of the container. The container that runs Flux always has the MiniCluster's name.",
        Length(MOST_NAME),
        Support.LOCAL,
    ] = ""
    image: Annotated[str, "The image."] = DEFAULT_IMAGE
    image_pull_policy: Annotated[
        str, "When the image is pulled (core/v1 Container).", OneOf(("Always", "IfNotPresent", "Never"))
    ] = ""
    image_pull_secret: Annotated[str, "The Secret for pulling the image."] = ""
    pull_always: Annotated[Switch, "Always pull the image. imagePullPolicy overrides this."] = False
    command: Annotated[
        str, "The job as shell text. With batch, each line is a job (\\$NAME is the job's own).", Support.LOCAL
    ] = ""
    commands: Annotated[Commands | None, "Shell text for the phases of a start.", Support.LOCAL] = None
    working_dir: Annotated[str, "The working directory of the job.", Support.LOCAL] = ""
    environment: Annotated[dict[str, str], "Environment variables.", Support.LOCAL] = {}
    secrets: Annotated[dict[str, SecretKey], "Environment variables with values from keys of Secrets."] = {}
    run_flux: Annotated[bool, "This container runs Flux. Not needed if it is the only container.", Support.LOCAL] = (
        False
    )
    launcher: Annotated[bool, "The command submits jobs itself, for example a workflow tool.", Support.LOCAL] = False
    batch: Annotated[bool, "Each line of the command is a job.", Support.LOCAL] = False
    batch_raw: Annotated[bool, "The command of a batch is a script that submits jobs itself.", Support.LOCAL] = False
    logs: Annotated[
        str, "The folder for the output files of a batch, preferably on a volume. Default: /tmp/fluxout.", Support.LOCAL
    ] = ""
    no_wrap_entrypoint: Annotated[bool, "Run the entry point of the image unchanged."] = False
    ports: Annotated[
        list[Port], "Ports of this container. Containers other than the one that runs Flux get a Service for them."
    ] = []
    life_cycle: Annotated[LifeCycle | None, "Commands after the start and before the stop of the container."] = None
    resources: Annotated[Resources | None, "Resource requests and limits of the container."] = None
    security_context: Annotated[SecurityContext | None, "Security context of the container (core/v1)."] = None
    volumes: Annotated[dict[str, Volume], "Volumes of this container by name."] = {}


class LeadBroker(Record, frozen=True):
    """The lead broker in another MiniCluster, for bursting.

    As in the Flux Operator, port 0 means the default port.
    """

    address: Annotated[str, "Host name of the lead broker in the other cluster."]
    name: Annotated[str, "Name of the lead's MiniCluster."]
    size: Annotated[Size, "Size of the lead's MiniCluster."]
    port: Annotated[PortOrDefault, "Port of the lead broker. 0: the default."] = DEFAULT_PORT

    def __post_init__(self) -> None:
        if self.port == 0:
            force_setattr(self, "port", DEFAULT_PORT)


class BurstCluster(Record, frozen=True):
    """Hosts of another cluster that may join; `size` 0 means `spec.size`."""

    name: Annotated[str, "Name of a cluster that may join. Default: burst-0, burst-1 and so on."] = ""
    size: Annotated[
        int, "Number of its hosts. 0: spec.size.", Bounds(0, MOST_PODS, least_means="spec.size", reason=_AS_A_JOB)
    ] = 0


class Bursting(Record, frozen=True):
    clusters: Annotated[list[BurstCluster], "Other clusters whose hosts may join."] = []
    hostlist: Annotated[str, "All hosts that may join, instead of those of this MiniCluster (RFC 29)."] = ""
    lead_broker: Annotated[LeadBroker | None, "The broker of another cluster that leads this one."] = None


class View(Record, frozen=True):
    """`flux.container`: the container that adds Flux to the user's image.

    As in the Flux Operator, an empty name, image or path means the default.
    """

    name: Annotated[str, "Name of the init container and of the volume with Flux."] = DEFAULT_VIEW_NAME
    image: Annotated[str, "The image with Flux. Headrace's own replaces the Flux Operator's well-known images."] = (
        DEFAULT_VIEW_IMAGE
    )
    disable: Annotated[Switch, "Add no Flux to the pods, because the container's image has its own."] = False
    image_pull_secret: Annotated[str, "The Secret for pulling the image."] = ""
    mount_path: Annotated[str, "The folder for configuration and links in the containers."] = DEFAULT_VIEW_PATH
    pull_always: Annotated[Switch, "Always pull the image."] = False
    python_path: Annotated[str, "PYTHONPATH for the commands."] = ""
    resources: Annotated[Resources | None, "Resource requests and limits of the init container."] = None
    security_context: Annotated[SecurityContext | None, "Security context of the init container (core/v1)."] = None
    working_dir: Annotated[str, "Working directory of the init container."] = ""

    def __post_init__(self) -> None:
        defaults = {"name": DEFAULT_VIEW_NAME, "image": DEFAULT_VIEW_IMAGE, "mount_path": DEFAULT_VIEW_PATH}
        for attribute, default in defaults.items():
            if not getattr(self, attribute):
                force_setattr(self, attribute, default)


class SchedulerOptions(Record, frozen=True):
    queue_policy: Annotated[str, "The order in which waiting jobs start.", OneOf(QUEUE_POLICIES)] = ""
    simple: Annotated[bool, "Use Flux's simple scheduler."] = False


class Flux(Record, frozen=True):
    arch: Annotated[str, "Accepted and without effect."] = ""
    broker_config: Annotated[
        str,
        "The brokers' configuration (TOML). Replaces the generated one.",
        Effect.RELOADS,
        Support.LOCAL,
    ] = ""
    bursting: Annotated[Bursting | None, "Hosts outside this cluster that may join the instance."] = None
    complete_workers: Annotated[bool, "Followers complete when their broker first ends."] = False
    connect_timeout: Annotated[
        str, "How long a broker tries to reach its parent, as a duration. Empty: the broker's default.", Support.LOCAL
    ] = "5s"
    container: Annotated[View | None, "The init container that adds Flux to the pods."] = None
    curve_cert: Annotated[str, "The certificate of the instance, as created by `flux keygen`. Unset: a new one."] = ""
    disable_socket: Annotated[bool, "Create no socket at a known path."] = False
    environment: Annotated[dict[str, str], "Environment variables for the job.", Support.LOCAL] = {}
    log_level: Annotated[LogLevel, "What brokers print: 0 (emergency) to 7 (debug).", Support.LOCAL] = 6
    minimal_service: Annotated[bool, "Create a Service with the lead's port instead of a headless one."] = False
    munge_secret: Annotated[str, "Accepted and without effect."] = ""
    no_wait_socket: Annotated[bool, "Sidecar containers start at once, before the instance accepts jobs."] = False
    option_flags: Annotated[str, "Additional options for flux submit.", Support.LOCAL] = ""
    scheduler: Annotated[SchedulerOptions | None, "Options of the scheduler.", Support.LOCAL] = None
    submit_command: Annotated[str, "The command that submits the job, instead of flux submit.", Support.LOCAL] = ""
    topology: Annotated[str, "Shape of the tree of brokers, such as kary:2.", Support.LOCAL] = ""
    wrap: Annotated[str, "A command that starts the brokers, such as strace. Its words are separated by commas."] = ""


class Logging(Record, frozen=True):
    debug: Annotated[Switch, "Print details about the submission of the job."] = False
    quiet: Annotated[Switch, "Print only the job's output."] = False
    strict: Annotated[Switch, "If a command before or after the job fails, the cluster ends."] = False
    timed: Annotated[Switch, "Print FLUXTIME lines with the times of the job and of the instance."] = False
    zeromq: Annotated[Switch, "Brokers log events of the connections between them, at level 7 (logLevel)."] = False


class Network(Record, frozen=True):
    disable_affinity: Annotated[bool, "Omit the rules that spread the pods over nodes."] = False
    headless_name: Annotated[
        str, "Name of the Service that gives pods their DNS names. Default: the MiniCluster's name."
    ] = ""


class Toleration(Record, frozen=True):
    effect: Annotated[
        str, "The effect of the taint; empty is all.", OneOf(("NoSchedule", "PreferNoSchedule", "NoExecute"))
    ] = ""
    key: Annotated[str, "The key of the taint; empty, with operator Exists, is all."] = ""
    operator: Annotated[str, "Equal (unless it is given) or Exists.", OneOf(("Exists", "Equal"))] = ""
    value: Annotated[str, "The value of the taint, with operator Equal."] = ""


class Pod(Record, frozen=True):
    annotations: Annotated[dict[str, str], "Annotations of the pods."] = {}
    labels: Annotated[dict[str, str], "Labels of the pods."] = {}
    automount_service_account_token: Annotated[bool, "Give the pods a token for the API server."] = False
    dns_policy: Annotated[
        str, "DNS policy (core/v1 PodSpec).", OneOf(("ClusterFirst", "ClusterFirstWithHostNet", "Default"))
    ] = ""
    host_ipc: Annotated[bool, "Use the IPC namespace of the node."] = field(name="hostIPC", default=False)
    host_pid: Annotated[bool, "Use the process namespace of the node."] = field(name="hostPID", default=False)
    node_affinity: Annotated[dict[str, list[str]], "Labels that nodes must have, each with the allowed values."] = {}
    node_selector: Annotated[dict[str, str], "Labels that nodes must have."] = {}
    resources: Annotated[
        dict[str, Quantity], "Resources of the whole pod, as requests and limits: cpu, memory, hugepages-SIZE."
    ] = {}
    restart_policy: Annotated[
        str,
        "OnFailure: a failed command runs again in the same pod. Default: Never.",
        OneOf(("OnFailure", "Never")),
    ] = ""
    runtime_class_name: Annotated[str, "Runtime class of the pods."] = ""
    scheduler_name: Annotated[str, "The scheduler that places the pods."] = ""
    security_context: Annotated[PodSecurityContext | None, "Security context of the pods (core/v1)."] = None
    service_account_name: Annotated[str, "Service account of the pods."] = ""
    tolerations: Annotated[list[Toleration], "Taints of nodes that the pods tolerate."] = []


class Archive(Record, frozen=True):
    path: Annotated[str, "The file for saving and restoring the queue, on a volume that outlives the pods."] = ""


# --- fields that v1alpha2 of the Flux Operator does not have; if they are absent, the behaviour is the Flux Operator's


class ExitCodes(Record, frozen=True):
    """`onExitCodes` of a pod failure rule (batch/v1 PodFailurePolicyOnExitCodesRequirement)."""

    operator: Annotated[str, "In or NotIn.", OneOf(("In", "NotIn"), optional=False)]
    values: Annotated[list[int], "Exit codes in ascending order."]
    container_name: Annotated[str, "The container with these exit codes. Unset: any container."] = ""


class PodCondition(Record, frozen=True):
    """An item of a rule's `onPodConditions` (batch/v1 PodFailurePolicyOnPodConditionsPattern)."""

    type: Annotated[str, "The type of the condition."]
    status: Annotated[str, "The status of the condition.", OneOf(("True", "False", "Unknown"), optional=False)] = "True"


class PodFailureRule(Record, frozen=True):
    """A rule of a pod failure policy.

    The action FailIndex is not allowed: it requires a back-off limit for each index, but all pods form one instance.
    """

    action: Annotated[
        str,
        "FailJob, Ignore (the pod is replaced and not counted) or Count.",
        OneOf(("FailJob", "Ignore", "Count"), optional=False),
    ]
    on_exit_codes: Annotated[ExitCodes | None, "The exit codes that match this rule."] = None
    on_pod_conditions: Annotated[
        list[PodCondition], "The pod conditions that match this rule, such as DisruptionTarget."
    ] = []


class PodFailurePolicy(Record, frozen=True):
    """The effect of a failed pod on the MiniCluster (batch/v1 PodFailurePolicy).

    Replaces the default rules.
    """

    rules: Annotated[list[PodFailureRule], "The rules in order. The first rule that matches a failed pod applies."] = []


class Autoscale(Record, frozen=True):
    """Sizing by the queue, between `min_size` and `spec.max_size`. Pods are removed after `idle_seconds`."""

    min_size: Annotated[Positive, "The minimum size."] = 1
    idle_seconds: Annotated[Natural, "Seconds without jobs after which pods are deleted."] = 60


class Group(Record, frozen=True):
    """Additional pods with another template, `NAME-GROUP-0` and so on, whose brokers join as followers.

    `max_size` 0 means `size`. `image` "" means the image of the container with Flux.
    """

    name: Annotated[str, "Name of the group. Its pods are NAME-GROUP-0, NAME-GROUP-1 and so on.", Length(MOST_NAME)]
    size: Annotated[Size, "Number of pods of the group.", Effect.RESIZES] = 1
    max_size: Annotated[SizeOrDefault, "The maximum size of the group. 0: size.", Effect.RESIZES] = 0
    image: Annotated[str, "The image. Default: that of the container that runs Flux."] = ""
    resources: Annotated[Resources | None, "Resource requests and limits of the container."] = None
    environment: Annotated[dict[str, str], "Environment variables."] = {}
    pod: Annotated[Pod | None, "The template of the group's pods. Default: that of the MiniCluster."] = None
    volumes: Annotated[dict[str, Volume], "Volumes by name."] = {}


class Spec(Record, frozen=True):
    containers: Annotated[
        list[Container],
        "The containers of each pod; one of them runs Flux and the job.",
        Items(MOST_CONTAINERS, "containers", least=1),
        Support.LOCAL,
    ]
    services: Annotated[
        list[Container],
        "Containers of one additional pod, NAME-services. Each runs the entry point of its image.",
        Items(MOST_CONTAINERS, "containers"),
        Support.LOCAL,
    ] = []
    size: Annotated[Size, "Number of pods.", Effect.RESIZES, Support.LOCAL] = 1
    min_size: Annotated[
        Natural,
        "Number of brokers that must be up before the job starts. 0 or unset: all of them.",
        Effect.NEXT_START,
        Support.LOCAL,
    ] = 0
    max_size: Annotated[
        SizeOrDefault,
        "The maximum size. The brokers know the hosts up to it from the start. 0 or unset: size is not limited.",
        Effect.RESIZES,
    ] = 0
    tasks: Annotated[
        int, "Number of tasks of the job. 0: one task per node.", Bounds(0, least_means="one a node"), Support.LOCAL
    ] = 1
    interactive: Annotated[Switch, "A cluster for interactive work; a command is optional.", Support.LOCAL] = False
    cleanup: Annotated[Switch, "Delete the MiniCluster once its job has ended.", Effect.AT_ONCE, Support.LOCAL] = False
    backoff_limit: Annotated[
        Natural | None, "Number of pod failures that the Job tolerates (batch/v1 Job). Default: 100."
    ] = None
    deadline_seconds: Annotated[Natural64, "Maximum run time of the Job in seconds (batch/v1 Job). 0: no limit."] = (
        31_500_000
    )
    job_labels: Annotated[dict[str, str], "Labels of the Job, such as the queue name for Kueue."] = {}
    share_process_namespace: Annotated[bool, "Containers of a pod see each other's processes."] = False
    archive: Annotated[Archive | None, "Saves the state of the instance, and restores it in another cluster."] = None
    flux: Annotated[Flux | None, "Options of the Flux instance.", Support.LOCAL] = None
    logging: Annotated[Logging | None, "What the brokers and the runner of the job print.", Support.LOCAL] = None
    network: Annotated[
        Network | None, "The Service that gives pods their DNS names, and the spread of pods over nodes."
    ] = None
    pod: Annotated[Pod | None, "The template of the pods."] = None
    # Fields that the Flux Operator does not have.
    suspend: Annotated[
        bool, "Delete the pods. If archive.path is set, the queue is saved first.", Effect.AT_ONCE, Support.ADDED
    ] = False
    managed_by: Annotated[
        str,
        "The controller that manages this MiniCluster, if it is not Headrace's operator.",
        Length(MOST_NAME),
        Effect.AT_ONCE,
        Support.ADDED,
    ] = ""
    ttl_seconds_after_finished: Annotated[
        Natural | None,
        "Delete the MiniCluster this many seconds after its end. Unset: keep it.",
        Effect.AT_ONCE,
        Support.ADDED,
    ] = None
    pod_failure_policy: Annotated[
        PodFailurePolicy | None,
        "The effect of pod failures on the cluster. Replaces the default rules.",
        Support.ADDED,
    ] = None
    ignore_failure: Annotated[
        bool,
        "The cluster ends with exit code 0, whatever the exit code of its command is.",
        Support.ADDED,
        Support.LOCAL,
    ] = False
    start_timeout_seconds: Annotated[
        Positive | None,
        "If not all pods run after this many seconds, the cluster fails and its pods are deleted.",
        Effect.AT_ONCE,
        Support.ADDED,
    ] = None
    autoscale: Annotated[Autoscale | None, "Adapt the size to the queue.", Effect.AT_ONCE, Support.ADDED] = None
    groups: Annotated[
        list[Group],
        "Additional pods with other templates. Their brokers join this instance.",
        Items(MOST_GROUPS, "groups", key="name"),
        Support.ADDED,
        Support.LOCAL,
    ] = []


class MiniCluster(Struct, frozen=True, kw_only=True):
    """A valid MiniCluster: its name, namespace ("": not given) and spec."""

    name: str
    spec: Spec
    namespace: str = ""

    @property
    def flux(self) -> Flux:
        """`spec.flux`. If it is absent, there are no options, and so no connect timeout."""
        return self.spec.flux or Flux(connect_timeout="")

    @property
    def logging(self) -> Logging:
        return self.spec.logging or Logging()

    @property
    def runner(self) -> Container:
        """The container in which the broker and the job run: the one marked runFlux, or the only one."""
        containers = self.spec.containers
        return containers[0] if len(containers) == 1 else next(one for one in containers if one.run_flux)


class InvalidMiniCluster(ValueError):
    """The file has no valid MiniCluster; `problems` lists everything that is wrong."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
