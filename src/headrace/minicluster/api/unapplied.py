"""Given fields that have no effect: anywhere, or on one machine (images, volumes, pod settings).

Headrace reports these fields once, so that users do not rely on a command, a limit or a mount that has no effect. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from .declarations import Support, fields_of
from .fields import Commands, Flux, MiniCluster, Record, Volume
from .plan import given_config, mode_of, placement_of
from .shell_text import Mode

# Why `submitCommand` or `optionFlags` have no effect in these modes.
_SUBMITS = {
    Mode.BATCH: "a batch is submitted by flux batch",
    Mode.LAUNCHER: "a launcher submits by itself",
    Mode.INTERACTIVE: "there is no command",
}


def without_effect(cluster: MiniCluster) -> list[str]:
    """A line for each given field that has no effect anywhere, as with the Flux Operator."""
    flux = cluster.flux
    given = {"arch": flux.arch, "mungeSecret": flux.munge_secret}
    found = [f"spec.flux.{name}: has no effect" for name, value in given.items() if value]
    for index, one in enumerate(cluster.spec.containers):
        if one.batch_raw and not one.batch:
            found.append(f"spec.containers[{index}].batchRaw: has no effect without batch: true")
    for index, one in enumerate(cluster.spec.services):
        ignored = {"command": one.command, "commands": one.commands, "runFlux": one.run_flux}
        found += [
            f"spec.services[{index}].{name}: has no effect: a service runs its image's own entry point"
            for name, value in ignored.items()
            if value
        ]
    path = cluster.spec.archive.path if cluster.spec.archive else ""
    if path and not any(_lasts(volume, path) for volume in cluster.runner.volumes.values()):
        found.append("spec.archive.path: lies in no volume that outlasts the lead's pod, and goes with it")
    return found


def _lasts(volume: Volume, path: str) -> bool:
    """Whether a file at `path` is in the volume and outlasts the pod."""
    return not volume.empty_dir and PurePosixPath(path).is_relative_to(volume.path)


def not_applied(cluster: MiniCluster) -> list[str]:
    """The paths of the given fields that have no effect on one machine, in the order of the schema."""
    spec = cluster.spec
    found = []
    for index, container in enumerate(spec.containers):
        path = f"spec.containers[{index}]"
        if container is cluster.runner:
            found += list(_given(container, path))
            if (container.commands or Commands()).service_pre:
                found.append(f"{path}.commands.servicePre")
        else:
            found.append(f"{path} ({container.name})")
    found += [f"spec.services[{index}] ({one.name})" for index, one in enumerate(spec.services)]
    found += list(_given(spec, "spec"))
    found += [f"spec.groups[{index}] ({one.name})" for index, one in enumerate(spec.groups)]
    if spec.flux:
        found += list(_given(spec.flux, "spec.flux"))
        found += _overridden(spec.flux, mode_of(cluster))
    return found


def _overridden(flux: Flux, mode: Mode) -> Iterator[str]:
    """Fields that have no effect because of another field of the same file, each with the reason."""
    if flux.broker_config:
        for name in placement_of(given_config(flux.broker_config)):
            yield f"spec.flux.brokerConfig [{name}]"
        if flux.scheduler:
            yield "spec.flux.scheduler (brokerConfig replaces it)"
    elif flux.scheduler and flux.scheduler.simple:
        yield "spec.flux.scheduler.simple"
    if flux.submit_command and mode is not Mode.SUBMIT:
        yield f"spec.flux.submitCommand ({_SUBMITS[mode]})"
    if flux.option_flags and mode in (Mode.LAUNCHER, Mode.INTERACTIVE):
        yield f"spec.flux.optionFlags ({_SUBMITS[mode]})"


def _given(record: Record, path: str) -> Iterator[str]:
    """The paths of the given fields of a record that only pods apply."""
    for one in fields_of(type(record)).values():
        value = getattr(record, one.attribute)
        if not one.is_marked(Support.LOCAL) and value != one.default and value is not None:
            yield f"{path}.{one.name}"
