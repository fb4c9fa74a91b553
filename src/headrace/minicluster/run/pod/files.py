"""The files in a pod that users, sidecars and scripts use, at the Flux Operator's paths.

They are below `mountPath`, a folder that the containers of a pod share. Pure functions return their texts;
`write_files` writes them at each start of the container.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from headrace.wire.client.installation import BINDINGS

from ...api import pod_plan
from ...api.pod_plan import PodPlan
from ...api.toml_text import toml_text
from .place import Place, PlaceError

# The home directory if the container's own is "/": a volume is mounted there, as in the Flux Operator.
HOME = "/home/flux-operator"


def bootstrap(plan: PodPlan, place: Place, address: str) -> dict[str, Any]:
    """The table `[bootstrap]` (flux-config-bootstrap(5)) of a pod whose address is `address`."""
    first, _, rest = plan.hosts.partition(",") if plan.lead_connect else (plan.hosts, "", "")
    bind = f"tcp://[{address}]:%p" if ":" in address else f"tcp://{address}:%p"
    hosts = [{"host": first, "connect": plan.lead_connect} if plan.lead_connect else {"host": first}]
    domain = f"{plan.service}.{place.namespace}.svc.{plan.domain}"
    return {
        "curve_cert": f"{place.config}/curve/curve.cert",
        "default_port": pod_plan.BROKER_PORT,
        "default_bind": bind,
        "default_connect": f"tcp://%h.{domain}:%p",
        "hosts": [*hosts, {"host": rest}] if rest else hosts,
    }


def view_text(plan: PodPlan, place: Place) -> str:
    """flux-view.sh, for users to source: sets up a shell so that `flux` and `import flux` are Headrace's."""
    paths = ":".join([BINDINGS, *([plan.python_path] if plan.python_path else [])])
    lines = [
        f'export PATH="$PATH:{pod_plan.VIEW}/bin"',
        f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{paths}"',
        f"export fluxsocket=local://{place.socket}",
        *(f"export {name}={_quoted(value)}" for name, value in plan.environment.items()),
    ]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "'\"'\"'") + "'"


def connect_text(place: Place) -> str:
    """flux-connect.sh: starts a shell that is connected to the pod's broker."""
    return f'#!/bin/sh\n. {place.mount}/flux-view.sh\nexec flux proxy "$fluxsocket" "${{SHELL:-sh}}"\n'


def fluxion_text() -> str:
    """load-fluxion.sh: replaces the current scheduler with the graph scheduler."""
    lines = ("remove -f sched-simple", "load sched-fluxion-resource", "load sched-fluxion-qmanager")
    return "".join(f"flux module {line}\n" for line in lines)


def folders(place: Place) -> list[str]:
    config = place.config
    return [
        f"{config}/etc/flux/config",
        f"{config}/etc/flux/system",
        f"{config}/curve",
        f"{config}/run/flux",
        f"{config}/run/headrace",
        f"{config}/var/lib/flux",
    ]


def texts(plan: PodPlan, place: Place, config: dict[str, Any]) -> dict[str, str]:
    """The text of each file by its path, without the certificate."""
    mount = place.mount
    return {
        f"{place.config}/etc/flux/config/broker.toml": toml_text(config),
        f"{place.config}/etc/flux/system/hostlist": f"{plan.hosts}\n",
        f"{mount}/flux-view.sh": view_text(plan, place),
        f"{mount}/flux-connect.sh": connect_text(place),
        f"{mount}/load-fluxion.sh": fluxion_text(),
        f"{mount}/flux-operator-done.txt": "",
    }


def write_files(plan: PodPlan, place: Place, config: dict[str, Any]) -> None:
    """Write all files, and the certificate to the path that the broker reads. Raises PlaceError."""
    try:
        for folder in folders(place):
            os.makedirs(folder, exist_ok=True)
        # Any user in the pod may connect to the socket; the broker checks the user's rights.
        for path, text in texts(plan, place, config).items():
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        _copy_private(os.path.join(place.keys, "curve.cert"), config["bootstrap"]["curve_cert"])
    except OSError as exc:
        raise PlaceError(f"{exc.filename}: {exc.strerror}: the pod's own files cannot be written") from None
    for name in ("flux-connect.sh", "load-fluxion.sh"):
        with contextlib.suppress(OSError):
            os.chmod(f"{place.mount}/{name}", 0o755)


def _copy_private(source: str, target: str) -> None:
    # In the volume, every user in the pod can read the file, but a broker requires that only its own user can read it.
    with open(source, "rb") as file:
        data = file.read()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
