"""The cluster queue as users install it: the printed file is applied, and pods of this tree's image do the work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import diagnosis
import pytest
from installed import IMAGE
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import TIMEOUT, until
from running_fluxqueue import Held, nodes_of_queues

import postgresql
from headrace.cluster_queue.names import CONFIGURATION, FLUXQUEUE
from headrace.images import oci
from headrace.images.release_images import operator_image
from headrace.programs.cluster_queue.install import Install
from headrace.programs.cluster_queue.package import PACKAGE

NAMESPACE = Install().namespace


@pytest.fixture
def server(cluster: Cluster) -> Iterator[postgresql.Postgresql]:
    """PostgreSQL where pods reach it."""
    if postgresql.binaries() is None:
        pytest.skip("needs PostgreSQL: `make packages` installs it")
    with postgresql.running(cluster.addresses.machine) as started:
        yield started


@pytest.fixture
def installed(cluster: Cluster, tmp_path: Path, server: postgresql.Postgresql) -> Iterator[None]:
    """Two replicas, whose store has its password from a Secret."""
    install = Install(image=IMAGE, replicas=2, store=server.address.url, store_secret="database")
    archive = tmp_path / "operator.tar"
    archive.write_bytes(oci.archive(f"docker.io/{IMAGE}", operator_image()))
    cluster.load(archive)
    where = f"--namespace={NAMESPACE}"
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=PACKAGE.install_file(install))
    password = f"--from-file=password={server.address.password_file}"
    cluster.kubectl("create", "secret", "generic", "database", password, where)
    try:
        cluster.kubectl("rollout", "status", f"deployment/{FLUXQUEUE}", where, TIMEOUT)
        yield
    except KubeError as exc:
        raise AssertionError(f"{exc}\n{diagnosis.of_namespace(cluster, NAMESPACE)}") from None
    finally:
        cluster.kubectl("delete", "secret", "database", where)
        cluster.kubectl("delete", "mutatingwebhookconfiguration", CONFIGURATION, "--ignore-not-found")
        cluster.kubectl("delete", "deployment", FLUXQUEUE, where, "--ignore-not-found", "--wait=false")


def test_the_installed_queue_holds_and_releases_with_the_rights_of_its_roles(
    installed: None, cluster: Cluster, namespace: str, server: postgresql.Postgresql
) -> None:
    until(lambda: nodes_of_queues(cluster) == {"default": 2})
    held = Held(cluster, namespace)
    held.job("hello", "echo hello", cpu="1", pods=2)
    held.wait("hello-job", "Finished")
    assert held.events("hello") == ["Released"]
    # The one that leads goes; the other goes on.
    lease = cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{FLUXQUEUE}")
    leader = lease["spec"]["holderIdentity"].partition("_")[0]
    cluster.kubectl(f"--namespace={NAMESPACE}", "delete", "pod", leader, "--wait=false")
    until(held.is_reviewed)
    held.pod("later", "echo later")
    held.wait("later-pod", "Finished")
    # Both have written into one database.
    with postgresql.opened(server) as database:

        def ended() -> list[str]:
            sql = "SELECT name FROM jobs WHERE namespace = :namespace AND state = 'Finished' ORDER BY name"
            return [str(row[0]) for row in database.rows(sql, {"namespace": namespace})]

        until(lambda: ended() == ["hello", "later"])
