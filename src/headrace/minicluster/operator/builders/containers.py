"""The containers of a MiniCluster's pods: the runner's, sidecars, services, and the copy of the view."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from ...api.fields import Container, Group, MiniCluster, View
from ...api.plan import mode_of
from ...api.pod_plan import NAMESPACE_VARIABLE, READY_PORT
from ...api.shell_text import Mode
from .. import names
from ..objects import as_object, without_unset
from . import own_flux
from .images import Images, has_own_flux, least_privileged, view_copy, view_image
from .volumes import PodVolumes, base_mounts, keys_mount, view_mounts

# The variable with the pod's namespace.
NAMESPACE = {"name": NAMESPACE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
_TERMINAL = {"stdin": True, "tty": True}
# The runner answers the first probe when its broker is up, and later probes at once. The first probe is sent after two
# seconds: by then the runner listens, even on a node where many pods start. A failed probe would cause an Event and a
# delay.
_READINESS = {
    "httpGet": {"path": "/", "port": READY_PORT},
    "initialDelaySeconds": 2,
    "periodSeconds": 5,
    "timeoutSeconds": 30,
    "failureThreshold": 2,
}


def sidecars(cluster: MiniCluster, images: Images, volumes: PodVolumes) -> list[dict[str, Any]]:
    """The containers beside the container with Flux, as init containers that keep running.

    Kubernetes ends such containers after the container with Flux, and restarts a failed one in place (sidecar
    containers, Kubernetes 1.29). An ordinary container would keep the pod from ending, and its failure would fail the
    pod and so repeat the job.
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
    found = _container(one, cluster.name)
    found["env"] = [*found.get("env", []), NAMESPACE]
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
    """A container of the services pod; it runs the entry point of its image."""
    found = _container(one, one.name)
    found.update(_TERMINAL)
    mounts = volumes.mounts(one.volumes)
    return {**found, "volumeMounts": mounts} if mounts else found


def view_copies(cluster: MiniCluster, images: Images) -> list[dict[str, Any]]:
    """The init container that copies the view; [] for an image volume or an image's own Flux."""
    if images.as_volume or has_own_flux(cluster):
        return []
    view = cluster.flux.container or View()
    own = as_object(view.security_context)
    copy = view_copy(
        view.name,
        view_image(cluster, images)[0],
        view_mounts(cluster, images),
        security_context=own or least_privileged(as_object(cluster.runner.security_context)),
        resources=as_object(view.resources),
        pull_always=view.pull_always,
        working_dir=view.working_dir,
    )
    return [copy]


def _container(one: Container, name: str) -> dict[str, Any]:
    """The fields of a container that the file gives; command and mounts depend on the container's role."""
    # Each variable is set only once: Kubernetes would use the last value, and server-side apply refuses duplicates.
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
