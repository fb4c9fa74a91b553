"""A MiniCluster whose lead is another MiniCluster's: its pods join that one's instance, through a Service."""

from __future__ import annotations

import contextlib
from typing import Any

from kubecluster.errors import KubeError
from patience import until
from running_operator import MiniClusters
from test_fields_in_pods import QUIET, certificate

from waiting import stays


def burst(miniclusters: MiniClusters, name: str, curve: str) -> None:
    """One pod that joins the instance of `home`, as the host that `home` knows as `burst-0`."""
    address = f"home.{miniclusters.namespace}.svc.cluster.local"
    bursting = {
        "leadBroker": {"address": address, "name": "home", "size": 1, "port": 8050},
        "clusters": [{"name": "burst", "size": 1}],
    }
    flux: dict[str, Any] = {"curveCert": curve, "bursting": bursting}
    miniclusters.apply(name, size=1, flux=flux, containers=[{"image": "local/busybox:1"}])


def log_so_far(miniclusters: MiniClusters, name: str) -> str:
    with contextlib.suppress(KubeError):
        return miniclusters.kubectl("logs", f"job/{name}", "-c", name)
    return ""


def test_pods_of_another_minicluster_join_a_lead_whose_certificate_they_have(miniclusters: MiniClusters) -> None:
    shared = certificate()
    flux: dict[str, Any] = {
        "curveCert": shared,
        "bursting": {"hostlist": "home-0,burst-0"},
        # An address that other clusters know, with the lead behind it.
        "minimalService": True,
    }
    command = "flux run -N2 hostname"
    container = {"image": "local/busybox:1", "command": command, "launcher": True}
    miniclusters.apply("home", size=1, flux=flux, containers=[container], logging=QUIET)
    # The lead waits for all hosts that it has been told of.
    miniclusters.wait("home", "brokersUp", "1")
    burst(miniclusters, "burst", certificate())
    told = "no broker with the certificate of /mnt/flux/config/curve/curve.cert answers there"
    until(lambda: told in log_so_far(miniclusters, "burst"))
    stays(lambda: miniclusters.status("home")["brokersUp"] == 1, 1.0)
    miniclusters.kubectl("delete", "minicluster", "burst", "--cascade=foreground")
    burst(miniclusters, "burst", shared)
    assert miniclusters.phase("home", "Finished")["exitCode"] == 0
    assert sorted(miniclusters.log("home").split()) == ["burst-0", "home-0"]
    assert miniclusters.phase("burst", "Finished")["exitCode"] == 0
