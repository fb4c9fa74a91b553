"""The containers of a MiniCluster's pods: the runner's, sidecars, services, and the copy of the view."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from ...api.fields import Capabilities, Container, Group, MiniCluster, SecurityContext, View
from ...api.mode import Mode
from ...api.plan import mode_of
from ...api.pod_plan import NAMESPACE_VARIABLE, READY_PORT, VIEW
from .. import names
from . import own_flux
from .images import Images, has_own_flux, view_image
from .records import as_object, without_unset
from .volumes import PodVolumes, base_mounts, keys_mount, view_mounts

# The command of the view's image, which copies the view.
COPY = ("/headrace-copy", VIEW)
_TERMINAL = {"stdin": True, "tty": True}
# The runner answers the first probe when its broker is up, and later ones at once. The first probe comes after two
# seconds, when the runner listens even on a node where many pods start: a failed probe would be an Event, and delay.
_READINESS = {
    "httpGet": {"path": "/", "port": READY_PORT},
    "initialDelaySeconds": 2,
    "periodSeconds": 5,
    "timeoutSeconds": 30,
    "failureThreshold": 2,
}


def sidecars(cluster: MiniCluster, images: Images, volumes: PodVolumes) -> list[dict[str, Any]]:
    """The containers beside the one with Flux, in the file's order: init containers that keep running.

    Kubernetes ends such containers after the container with Flux, and restarts one in place when it fails (sidecar
    containers, Kubernetes 1.29). Ordinary containers would keep the pod from ending, and a failure of one would fail
    the pod, and so repeat the job.
    """
    return [
        _sidecar(cluster, one, index, images, volumes)
        for index, one in enumerate(cluster.spec.containers)
        if one is not cluster.runner
    ]


def runner(cluster: MiniCluster, images: Images, volumes: PodVolumes, group: Group | None = None) -> dict[str, Any]:
    """The container with the broker, in the MiniCluster's own pods or in those of a group."""
    one = cluster.runner
    if group:
        one = msgspec.structs.replace(
            one,
            image=group.image or one.image,
            resources=group.resources or one.resources,
            environment={**one.environment, **group.environment},
            volumes={**one.volumes, **group.volumes},
            ports=[],
        )
    namespace = {"name": NAMESPACE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    found = _container(one, cluster.name)
    found["env"] = [*found.get("env", []), namespace]
    if has_own_flux(cluster):
        index = next(index for index, item in enumerate(cluster.spec.containers) if item is cluster.runner)
        found["command"] = own_flux.command(cluster, index)
        found["env"].append(own_flux.ADDRESS)
    else:
        found["command"] = [names.RUNNER]
        found["readinessProbe"] = _READINESS
    if group:
        found["env"].append({"name": names.GROUP_VARIABLE, "value": group.name})
    if cluster.spec.interactive or mode_of(cluster) is Mode.INTERACTIVE:
        found.update(_TERMINAL)
    mounts = [*base_mounts(cluster, images), keys_mount(cluster)]
    found["volumeMounts"] = [*mounts, *volumes.mounts(one.volumes)]
    return found


def _sidecar(cluster: MiniCluster, one: Container, index: int, images: Images, volumes: PodVolumes) -> dict[str, Any]:
    found = _container(one, one.name)
    if not one.no_wrap_entrypoint:
        own = has_own_flux(cluster)
        found["command"] = own_flux.command(cluster, index) if own else [names.RUNNER, "sidecar", str(index)]
    found.update(_TERMINAL)
    found["restartPolicy"] = "Always"
    found["volumeMounts"] = [*base_mounts(cluster, images), *volumes.mounts(one.volumes)]
    return found


def service(one: Container, volumes: PodVolumes) -> dict[str, Any]:
    """A container of the services pod: its image's own entry point runs."""
    found = _container(one, one.name)
    found.update(_TERMINAL)
    mounts = volumes.mounts(one.volumes)
    return {**found, "volumeMounts": mounts} if mounts else found


def view_copies(cluster: MiniCluster, images: Images) -> list[dict[str, Any]]:
    """The init container that copies the view; none for a view that is mounted."""
    if images.as_volume or has_own_flux(cluster):
        return []
    view = cluster.flux.container or View()
    fields = {
        "name": view.name,
        "image": view_image(cluster, images)[0],
        "command": list(COPY),
        "imagePullPolicy": "Always" if view.pull_always else "IfNotPresent",
        "workingDir": view.working_dir,
        "resources": as_object(view.resources),
        "securityContext": as_object(view.security_context or _least_privileged(cluster.runner)),
        "volumeMounts": view_mounts(cluster, images),
    }
    return [without_unset(fields)]


def _least_privileged(one: Container) -> SecurityContext:
    """The security context for the copy of a view: least privileges, and the user of the container with Flux. A
    MiniCluster whose containers satisfy the `restricted` Pod Security Standard satisfies it as a whole.
    """
    given = one.security_context or SecurityContext()
    return SecurityContext(
        allow_privilege_escalation=False,
        capabilities=Capabilities(drop=["ALL"]),
        run_as_group=given.run_as_group,
        run_as_non_root=given.run_as_non_root,
        run_as_user=given.run_as_user,
        se_linux_options=given.se_linux_options,
        seccomp_profile=given.seccomp_profile,
    )


def _container(one: Container, name: str) -> dict[str, Any]:
    """The fields of a container that the file gives; command and mounts depend on the container's role."""
    # Of two values of one variable Kubernetes takes the last, and server-side apply refuses both.
    env = {key: without_unset({"name": key, "value": value}) for key, value in one.environment.items()}
    for variable, ref in one.secrets.items():
        env[variable] = {"name": variable, "valueFrom": {"secretKeyRef": {"name": ref.name, "key": ref.key}}}
    fields = {
        "name": name,
        "image": one.image,
        "imagePullPolicy": _pull_policy(one),
        "workingDir": one.working_dir,
        "env": list(env.values()),
        "ports": [{"containerPort": port, "protocol": "TCP"} for port in dict.fromkeys(one.ports)],
        "lifecycle": _lifecycle(one),
        "resources": as_object(one.resources),
        "securityContext": as_object(one.security_context),
    }
    return without_unset(fields)


def _pull_policy(one: Container) -> str:
    return "Always" if one.pull_always else one.image_pull_policy or "IfNotPresent"


def _lifecycle(one: Container) -> dict[str, Any]:
    hooks = one.life_cycle
    if not hooks:
        return {}
    given = {"postStart": hooks.post_start_exec, "preStop": hooks.pre_stop_exec}
    return {name: {"exec": {"command": shlex.split(text)}} for name, text in given.items() if text.strip()}
