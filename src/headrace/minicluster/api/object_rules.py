"""The API server's rules for the objects of a MiniCluster: pods, resources, volumes, mounts.

The operator copies these parts of a spec into a Job, a Service and a ConfigMap, and would retry forever if the API
server refused them. Sources: the API conventions of Kubernetes and its Pod reference (version 1.34). Pure.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator
from fractions import Fraction

from headrace.k8s.objects.labels import (
    DOMAIN_RULE,
    WORD_RULE,
    check_domain,
    check_key,
    check_labels,
    check_name,
    check_service_name,
    check_word,
    is_domain,
    is_key,
)
from headrace.k8s.objects.problems import LABEL, LABEL_RULE, Problem
from headrace.k8s.objects.quantities import quantity

from .fields import (
    QUANTITY,
    Capabilities,
    Container,
    MiniCluster,
    Pod,
    PodSecurityContext,
    Resources,
    SeccompProfile,
    SecurityContext,
    View,
    Volume,
    WindowsOptions,
)
from .pod_plan import INDEX_VARIABLE

_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?\Z")
_KEY_OF_DATA = re.compile(r"(?!\.{1,2}\Z)[-._a-zA-Z0-9]{1,253}\Z")
_SOURCES = ("csiDriver", "secretName", "emptyDir", "hostPath", "configMapName", "claimName")
# The prefix of the variables from which a pod determines its place.
_OUR_VARIABLES = "HEADRACE_POD_"
# Labels that Kubernetes sets on the pods of a Job (batch/v1). A Job whose template has other values is refused.
_NAMES_OF_JOBS = ("job-name", "batch.kubernetes.io/job-name")
_LABELS_OF_JOBS = (*_NAMES_OF_JOBS, "controller-uid", "batch.kubernetes.io/controller-uid")
# Volumes that the operator mounts in addition to the view.
_BASE_VOLUMES = ("spack-software", "flux-operator-home")
_BASE_MOUNTS = ("/home/flux-operator", "/flux_operator/", "/flux_operator_keys/", "/opt/software")
# The path that the view's programs are built for, independent of mountPath. Pods with their image's own Flux have no
# view.
_VIEW = "/mnt/flux/view"
_VIEW_MOUNTS = ("/mnt/flux", _VIEW)


def check_objects(cluster: MiniCluster) -> Iterator[Problem]:
    """The problems that the API server would report for a cluster's objects.

    The spec must have the right shape.
    """
    spec = cluster.spec
    if spec.network:
        yield from check_service_name(spec.network.headless_name, "spec.network.headlessName")
    yield from check_labels(spec.job_labels, "spec.jobLabels")
    yield from check_pod(spec.pod or Pod(), cluster, "spec.pod")
    view = cluster.flux.container or View()
    yield from check_name(view.name, "spec.flux.container.name")
    yield from check_image(view.image, "spec.flux.container")
    yield from check_resources(view.resources, "spec.flux.container.resources")
    yield from _check_security(view.security_context, "spec.flux.container.securityContext")
    yield from _check_view_path(view)
    for index, one in enumerate(spec.containers):
        path = f"spec.containers[{index}]"
        # The container with Flux has the cluster's name.
        runs = one.run_flux or len(spec.containers) == 1
        name, where = (cluster.name, "metadata.name") if runs else (one.name, f"{path}.name")
        if name == view.name:
            rule = f"is {name!r}, the name of the container that adds Flux: choose another, or set flux.container.name"
            yield Problem(where, rule)
        yield from _check_container(one, path)
        yield from check_volumes(one.volumes, *own_volumes(cluster), f"{path}.volumes")
        if one.ports and not runs:
            yield from check_service_name(one.name, f"{path}.name")
            if one.name == ((spec.network.headless_name if spec.network else "") or cluster.name):
                yield Problem(f"{path}.name", f"{one.name!r} is the name of the Service of the pods' host names")
    if spec.services and len(f"{cluster.name}-services") > 63:
        rule = f"is too long for services: their pod's name, {cluster.name}-services, must have 63 characters at most"
        yield Problem("metadata.name", rule)
    for index, one in enumerate(spec.services):
        path = f"spec.services[{index}]"
        yield from _check_container(one, path)
        yield from check_volumes(one.volumes, (), set(), f"{path}.volumes")


def _check_view_path(view: View) -> Iterator[Problem]:
    """Check that no other mount of the operator is at the path of the view's volume."""
    path = posixpath.normpath(view.mount_path)
    if not path.startswith("/") or not path.strip("/"):
        rule = f"must be an absolute path below /, such as /mnt/flux, not {view.mount_path!r}"
        yield Problem("spec.flux.container.mountPath", rule)
    taken = [mount.rstrip("/") for mount in _BASE_MOUNTS]
    if path in taken or (not view.disable and f"{path}/".startswith(f"{_VIEW}/")):
        yield Problem("spec.flux.container.mountPath", f"{path} is in use by Headrace itself: choose another path")


def own_volumes(cluster: MiniCluster) -> tuple[tuple[str, ...], set[str]]:
    """The names and mount paths of the volumes that the operator adds to a pod with a broker."""
    view = cluster.flux.container or View()
    names = (*_BASE_VOLUMES, view.name, f"{cluster.name}-entrypoint", f"{cluster.name}-curve")
    return names, {*_BASE_MOUNTS, *(() if view.disable else _VIEW_MOUNTS), view.mount_path}


def check_pod(pod: Pod, cluster: MiniCluster, path: str) -> Iterator[Problem]:
    """Check the `pod` of a MiniCluster or of one of its groups."""
    yield from check_labels(pod.labels, f"{path}.labels")
    for key, value in pod.labels.items():
        # The pods of groups belong to Jobs with other names, but may have the labels of `spec.pod`.
        own = key in _NAMES_OF_JOBS and value == cluster.name and not cluster.spec.groups
        if key in _LABELS_OF_JOBS and not own:
            yield Problem(f"{path}.labels.{key}", "is set by Kubernetes on the pods of a Job, choose another label")
    yield from check_labels(pod.node_selector, f"{path}.nodeSelector")
    for key in pod.annotations:
        yield from check_key(key, f"{path}.annotations")
    for field, name in (("serviceAccountName", pod.service_account_name), ("runtimeClassName", pod.runtime_class_name)):
        yield from check_domain(name, f"{path}.{field}")
    if pod.dns_policy == "None":
        yield Problem(f"{path}.dnsPolicy", "None needs name servers, but a MiniCluster has no field for them")
    if pod.security_context:
        yield from _check_pod_security(pod.security_context, f"{path}.securityContext")
    if pod.host_pid and cluster.spec.share_process_namespace:
        yield Problem(f"{path}.hostPID", "cannot be combined with shareProcessNamespace")
    yield from _check_pod_resources(pod.resources, cluster, f"{path}.resources")
    preferences = not (cluster.spec.network and cluster.spec.network.disable_affinity)
    for key, values in pod.node_affinity.items():
        yield from check_key(key, f"{path}.nodeAffinity")
        # Without values, such a label has an effect only if the operator adds preferences of its own.
        if not values and preferences:
            yield Problem(f"{path}.nodeAffinity.{key}", "must have at least one value, or no node fits")
        for index, value in enumerate(values):
            yield from check_word(value, f"{path}.nodeAffinity.{key}[{index}]")
    for index, one in enumerate(pod.tolerations):
        where = f"{path}.tolerations[{index}]"
        yield from check_word(one.value, f"{where}.value")
        if one.key and not is_key(one.key):
            yield Problem(f"{where}.key", f"must be NAME or DOMAIN/NAME, with a NAME of {WORD_RULE}, not {one.key!r}")
        if one.operator == "Exists" and one.value:
            yield Problem(f"{where}.value", "cannot be combined with operator: Exists")
        if not one.key and one.operator != "Exists":
            yield Problem(f"{where}.key", "is required unless operator is Exists")


def _check_pod_security(context: PodSecurityContext, path: str) -> Iterator[Problem]:
    names = [one.name for one in context.sysctls]
    for index, name in enumerate(names):
        if len(name) > 253 or not _SYSCTL.match(name):
            rule = f"{name!r} is not a kernel parameter such as net.core.somaxconn"
            yield Problem(f"{path}.sysctls[{index}].name", rule)
        elif name in names[:index]:
            yield Problem(f"{path}.sysctls[{index}].name", f"{name!r} is given twice")
    yield from _check_windows(context.windows_options, f"{path}.windowsOptions")
    if context.seccomp_profile:
        yield from _check_seccomp(context.seccomp_profile, f"{path}.seccompProfile")


def _check_windows(options: WindowsOptions | None, path: str) -> Iterator[Problem]:
    if options and options.host_process:
        yield Problem(f"{path}.hostProcess", "needs the network of a Windows node, which a MiniCluster cannot have")


def _check_pod_resources(given: dict[str, str], cluster: MiniCluster, path: str) -> Iterator[Problem]:
    """Check the resources of a whole pod.

    They are its limits and its requests, so no container may have more.
    """
    huge = sorted(name for name in given if name.startswith("hugepages-"))
    if huge and not given.keys() & {"cpu", "memory"}:
        yield Problem(path, f"{huge[0]} needs cpu or memory beside it")
    containers = [one.resources for one in cluster.spec.containers if one.resources]
    for name, text in given.items():
        where = f"{path}.{name}"
        if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
            yield Problem(where, "is not a resource of a pod (cpu, memory, hugepages-SIZE): set it for a container")
            continue
        if quantity(text) < 0:
            yield Problem(where, f"must not be negative, it is {text}")
            continue
        asked = sum(quantity(one.requests.get(name) or one.limits.get(name) or "0") for one in containers)
        most = max((quantity(one.limits.get(name) or "0") for one in containers), default=Fraction(0))
        if quantity(text) < max(asked, most):
            yield Problem(where, f"is {text}, less than the containers of the pod ask for")


def _check_container(container: Container, path: str) -> Iterator[Problem]:
    yield from check_image(container.image, path)
    yield from check_resources(container.resources, f"{path}.resources")
    yield from _check_security(container.security_context, f"{path}.securityContext")
    for variable, secret in container.secrets.items():
        if not is_domain(secret.name):
            rule = f"{secret.name!r} is not a valid name of a Secret: {DOMAIN_RULE}"
            yield Problem(f"{path}.secrets.{variable}.name", rule)
        if not _KEY_OF_DATA.match(secret.key):
            rule = f"{secret.key!r} is not a valid key of a Secret: letters, digits, '-', '_' and '.'"
            yield Problem(f"{path}.secrets.{variable}.key", rule)
    if container.life_cycle:
        yield from _check_words(container.life_cycle.post_start_exec, f"{path}.lifeCycle.postStartExec")
        yield from _check_words(container.life_cycle.pre_stop_exec, f"{path}.lifeCycle.preStopExec")


def _check_words(text: str, path: str) -> Iterator[Problem]:
    """Check that a command that runs without a shell can be split into words."""
    try:
        shlex.split(text)
    except ValueError as exc:
        yield Problem(path, f"is not a valid command: {str(exc).lower()}")


def check_image(image: str, path: str) -> Iterator[Problem]:
    """Check the `image` of the object at `path`."""
    if not image or image.split() != [image]:
        yield Problem(f"{path}.image", f"must be the name of an image, without spaces, not {image!r}")


def _check_security(context: SecurityContext | None, path: str) -> Iterator[Problem]:
    if not context:
        return
    if context.proc_mount == "Unmasked":
        yield Problem(f"{path}.procMount", "Unmasked needs hostUsers: false, which a MiniCluster cannot have")
    added = (context.capabilities or Capabilities()).add
    if context.privileged and context.allow_privilege_escalation is False:
        yield Problem(f"{path}.allowPrivilegeEscalation", "cannot be false with privileged: true")
    elif context.allow_privilege_escalation is False and "CAP_SYS_ADMIN" in added:
        yield Problem(f"{path}.allowPrivilegeEscalation", "cannot be false with the capability CAP_SYS_ADMIN")
    yield from _check_windows(context.windows_options, f"{path}.windowsOptions")
    if context.seccomp_profile:
        yield from _check_seccomp(context.seccomp_profile, f"{path}.seccompProfile")


def _check_seccomp(profile: SeccompProfile, path: str) -> Iterator[Problem]:
    name = profile.localhost_profile
    if (profile.type == "Localhost") != bool(name):
        yield Problem(f"{path}.localhostProfile", "must be given with type: Localhost, and with no other")
    elif name.startswith("/") or ".." in name.split("/"):
        yield Problem(f"{path}.localhostProfile", f"must be a path in the kubelet's folder, without '..', not {name!r}")


def check_resources(resources: Resources | None, path: str) -> Iterator[Problem]:
    """Check the names and amounts of a container's resources. The quantities must be valid."""
    if not resources:
        return
    for kind, given in (("limits", resources.limits), ("requests", resources.requests)):
        for name, text in given.items():
            where = f"{path}.{kind}.{name}"
            standard = name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-")
            if not standard and "/" not in name:
                yield Problem(
                    where, "is not a resource (cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME)"
                )
            else:
                yield from check_key(name, f"{path}.{kind}")
            value = quantity(text)
            if value < 0:
                yield Problem(where, f"must not be negative, it is {text}")
            elif "/" in name and value.denominator != 1:
                yield Problem(where, f"must be a whole number, not {text}")
    names = {*resources.limits, *resources.requests}
    huge = sorted(name for name in names if name.startswith("hugepages-"))
    if huge and not names & {"cpu", "memory"}:
        yield Problem(path, f"{huge[0]} needs cpu or memory beside it")
    for name, text in resources.requests.items():
        limit = resources.limits.get(name)
        if "/" in name and (limit is None or quantity(limit) != quantity(text)):
            yield Problem(f"{path}.requests.{name}", "must be the same as the limit: such resources are not shared")
        elif limit is not None and quantity(text) > quantity(limit):
            yield Problem(f"{path}.requests.{name}", f"must not be above the limit, which is {limit}")


def check_volumes(volumes: dict[str, Volume], taken: tuple[str, ...], mounts: set[str], path: str) -> Iterator[Problem]:
    """Check a container's volumes.

    `taken` are the names of the operator's own volumes in the container, and `mounts` their mount paths. The paths of
    `volumes` are added to `mounts`.
    """
    for key, volume in volumes.items():
        where = f"{path}.{key}"
        if not LABEL.match(key):
            yield Problem(where, f"{key!r} cannot name a volume: {LABEL_RULE}")
        elif len(key) > 63:
            yield Problem(where, f"has {len(key)} characters, at most 63 fit the name of a volume")
        elif key in taken:
            yield Problem(where, "is the name of a volume that the operator makes, choose another")
        yield from _check_volume(volume, where)
        mount = volume.path or ("/dev/shm" if volume.empty_dir else "")
        if mount and mount in mounts:
            rule = "cannot be where another volume is, or what the operator mounts"
            yield Problem(f"{where}.path", f"{mount} {rule}")
        mounts.add(mount)


def _check_volume(volume: Volume, path: str) -> Iterator[Problem]:
    given = (
        volume.csi_driver,
        volume.secret_name,
        volume.empty_dir,
        volume.host_path,
        volume.config_map_name,
        volume.claim_name,
    )
    if not any(given):
        yield Problem(path, f"has no source: give one of {', '.join(_SOURCES)}")
    elif not volume.path and not volume.empty_dir:
        yield Problem(f"{path}.path", "is required: where the volume appears in the container")
    yield from check_domain(volume.csi_driver, f"{path}.csiDriver")
    yield from check_domain(volume.secret_name, f"{path}.secretName")
    yield from check_domain(volume.config_map_name, f"{path}.configMapName")
    yield from check_domain(volume.claim_name, f"{path}.claimName")
    if ".." in volume.host_path.split("/"):
        yield Problem(f"{path}.hostPath", f"must not contain '..', it is {volume.host_path}")
    for key, name in volume.items.items():
        if not name or name.startswith("/") or ".." in name.split("/"):
            yield Problem(f"{path}.items.{key}", f"must be a path below the volume, without '..', not {name!r}")
    if volume.empty_dir_size_limit and not QUANTITY.match(volume.empty_dir_size_limit):
        rule = f"must be a quantity such as 500Mi or 2Gi, not {volume.empty_dir_size_limit!r}"
        yield Problem(f"{path}.emptyDirSizeLimit", rule)
    elif volume.empty_dir_size_limit and quantity(volume.empty_dir_size_limit) < 0:
        yield Problem(f"{path}.emptyDirSizeLimit", f"must not be negative, it is {volume.empty_dir_size_limit}")


def check_variables(names: Iterable[str], path: str) -> Iterator[Problem]:
    """Check the names of environment variables in the object at `path`."""
    for name in names:
        if not _VARIABLE.match(name):
            yield Problem(f"{path}.{name}", "is not a valid name of a variable: letters, digits, '_', '-' and '.'")
        elif name == INDEX_VARIABLE or name.startswith(_OUR_VARIABLES):
            yield Problem(f"{path}.{name}", "is set by Kubernetes or Headrace in each pod, choose another variable")
