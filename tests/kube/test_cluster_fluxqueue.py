"""The cluster queue that `make fluxqueue` puts into a developer's cluster."""

from __future__ import annotations

from kubecluster import fluxqueue
from kubecluster.cluster import Cluster
from patience import until
from running_fluxqueue import Held


def test_a_cluster_queue_of_this_tree_holds_what_is_created(control_plane: Cluster, namespace: str) -> None:
    fluxqueue.start(control_plane)
    try:
        held = Held(control_plane, namespace)
        held.job("hello")
        # There is no node.
        until(lambda: "no node could ever serve it" in held.status("hello-job").get("reason", ""))
        fluxqueue.start(control_plane)
        assert "fluxqueue" in control_plane.box.processes()[0]
    finally:
        fluxqueue.stop(control_plane)
