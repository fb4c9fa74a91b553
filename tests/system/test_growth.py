"""Hosts that join a running instance beyond its first size, and hosts that leave its resources."""

from __future__ import annotations

from pathlib import Path

import pytest
from bootstrapped import PATIENCE, Cluster, cluster, until


def bootstrap(brokers: Cluster, size: int, resources: bool = False) -> None:
    """Let the configuration file name `size` hosts from now on, with or without what they have."""
    text = Path(brokers.config).read_text()
    head, _, rest = text.partition("hosts = ")
    _, _, table = rest.partition("[resource]")
    names = f'hosts = [{{host = "fake[0-{size - 1}]"}}]\n'
    Path(brokers.config).write_text(head + names + (f"[resource]{table}" if resources else ""))


def start(brokers: Cluster, size: int) -> None:
    for rank in range(1, size):
        brokers.broker(rank)
    brokers.lead()
    until(lambda: brokers.up() == set(range(size)), "all resources are up")


def hosts_of_job(brokers: Cluster, nodes: int) -> list[str]:
    """Where a job on so many nodes runs, as its shells say."""
    done = brokers.flux("run", f"-N{nodes}", "sh", "-c", "echo $FLUX_TASK_RANK $(flux getattr rank)")
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("topo", ["custom", "kary:2"])
@pytest.mark.parametrize("first", [1, 2])
def test_hosts_join_beyond_the_first_size_and_jobs_use_them(first: int, topo: str) -> None:
    with cluster(first, f"tbon.topo={topo}") as brokers:
        bootstrap(brokers, first)
        start(brokers, first)
        done = brokers.flux("overlay", "grow", "fake[0-5]")
        assert (done.stdout, done.returncode) == ("fake[0-5]: rank 0-5 of 6\n", 0)
        assert brokers.flux("getattr", "size").stdout == "6\n"
        assert brokers.flux("getattr", "hostlist").stdout == "fake[0-5]\n"
        # They are expected, and down: a job may wait for them.
        assert brokers.down() == set(range(first, 6))
        waits = brokers.flux("submit", "-N6", "hostname").stdout.strip()
        bootstrap(brokers, 6)
        for rank in range(first, 6):
            brokers.broker(rank)
        until(lambda: brokers.up() == set(range(6)), "those that joined are up")
        assert len(brokers.flux("job", "attach", waits).stdout.splitlines()) == 6
        assert hosts_of_job(brokers, 6) == [f"{rank} {rank}" for rank in range(6)]
        # Every broker knows of all: a follower of the first size reaches one that joined.
        for rank in range(6):
            assert brokers.flux("exec", "-r", str(rank), "flux", "getattr", "size").stdout == "6\n"
        reached = brokers.flux("exec", "-r", str(first - 1), "flux", "ping", "-c1", "-r5", "broker")
        assert reached.returncode == 0, reached.stderr
        assert brokers.health()[0] == "full"
        assert brokers.finish() == dict.fromkeys(range(6), 0)
        brokers.until_nothing_is_left()


def test_a_follower_that_is_started_again_with_the_first_list_learns_of_the_others() -> None:
    with cluster(2) as brokers:
        bootstrap(brokers, 2)
        start(brokers, 2)
        assert brokers.flux("overlay", "grow", "fake[2-3]").returncode == 0
        brokers.brokers[1].kill()
        brokers.brokers[1].wait()
        until(lambda: brokers.health()[1][1] == "lost", "the loss is noticed")
        brokers.broker(1)
        until(lambda: brokers.up() == {0, 1}, "it is up again")
        assert brokers.flux("exec", "-r1", "flux", "getattr", "hostlist").stdout == "fake[0-3]\n"
        bootstrap(brokers, 4)
        brokers.broker(3)
        until(lambda: brokers.up() == {0, 1, 3}, "one of those that were added is up")
        assert brokers.flux("exec", "-r1", "flux", "ping", "-c1", "-r3", "broker").returncode == 0


def test_hosts_in_another_order_are_refused_and_told_whose_rank_that_is() -> None:
    with cluster(2) as brokers:
        bootstrap(brokers, 2)
        start(brokers, 2)
        assert brokers.flux("overlay", "grow", "fake[5,4]").stdout == "fake[5,4]: rank 2-3 of 4\n"
        text = Path(brokers.config).read_text()
        Path(brokers.config).write_text(text.replace("fake[0-1]", "fake[0-1,4-5]"))
        assert brokers.broker(4).wait(PATIENCE) == 1
        assert "hello refused: rank 2 is fake5 here, and fake4 is rank 3" in brokers.log(4)


def test_only_an_instance_of_a_bootstrap_table_grows_and_only_its_leader_is_asked() -> None:
    with cluster(2) as brokers:
        bootstrap(brokers, 2)
        start(brokers, 2)
        with brokers.handle() as handle:
            for hosts, text in (("fake[0", "hosts: "), ("", "name at least one host")):
                with pytest.raises(OSError, match=r"overlay\.grow: ") as refused:
                    handle.rpc("overlay.grow", {"hosts": hosts}).get(PATIENCE)
                assert text in str(refused.value)
            with pytest.raises(OSError, match="on the leader, rank 0"):
                handle.rpc("overlay.grow", {"hosts": "fake7"}, 1).get(PATIENCE)
    with cluster(5, "tbon.topo=mincrit:2") as brokers:
        bootstrap(brokers, 5)
        start(brokers, 5)
        refused = brokers.flux("overlay", "grow", "fake[5-8]")
        assert "brokers that run would have other parents" in refused.stderr
        assert brokers.flux("getattr", "size").stdout == "5\n"


@pytest.mark.parametrize("apart", [False, True], ids=["", "resource in a process of its own"])
def test_nodes_leave_the_resources_once_they_are_idle_and_can_come_back(apart: bool) -> None:
    with cluster(3) as brokers:
        bootstrap(brokers, 3)
        if apart:
            with open(brokers.config, "a", encoding="utf-8") as file:
                file.write('[headrace]\nexec-modules = ["resource"]\n')
        start(brokers, 3)
        job = brokers.flux("submit", "-N3", "sleep", "300").stdout.strip()
        brokers.flux("job", "wait-event", job, "start")
        refused = brokers.flux("resource", "shrink", "2")
        assert "rank 2 has jobs: drain it and wait, or cancel them" in refused.stderr
        assert brokers.up() == {0, 1, 2}
        brokers.flux("resource", "drain", "2", "leaves")
        with brokers.handle() as handle:
            told = iter(handle.stream("resource.busy"))
            assert next(told) == {"ranks": "0-2"}
            brokers.flux("cancel", job)
            assert next(told) == {"ranks": ""}
        assert brokers.flux("resource", "shrink", "fake2").returncode == 0
        assert brokers.flux("resource", "list", "-s", "all", "-no", "{nnodes}").stdout == "2\n"
        assert brokers.flux("resource", "drain", "-no", "{ranks}").stdout == ""
        big = brokers.flux("run", "-N3", "true")
        assert "unsatisfiable" in big.stderr
        assert hosts_of_job(brokers, 2) == ["0 0", "1 1"]
        # Its broker is still there, so it can be used at once.
        assert brokers.flux("overlay", "grow", "fake2").stdout == "fake2: rank 2 of 3\n"
        until(lambda: brokers.up() == {0, 1, 2}, "it is back")
        assert len(hosts_of_job(brokers, 3)) == 3


def shape(brokers: Cluster, cores: int, gpus: int = 0) -> tuple[str, ...]:
    """What to put before the command of a broker whose node has so many cores and GPUs."""
    devices = "".join(f"<object type='OSDev' name='cuda{number}'/>" for number in range(gpus))
    file = Path(brokers.folder, f"node-{cores}-{gpus}.xml")
    objects = "<object type='Core'/>" * cores + devices
    file.write_text(f"<topology><object type='Machine'>{objects}</object></topology>")
    return ("env", f"FLUX_HWLOC_XMLFILE={file}")


def test_each_node_is_in_r_with_what_it_has_whenever_it_comes() -> None:
    """Without a table [resource]; the first jobs run while two of four hosts are missing."""
    with cluster(4, "broker.quorum=2") as brokers:
        bootstrap(brokers, 4)
        brokers.broker(1, prefix=shape(brokers, 3, 1))
        brokers.lead(prefix=shape(brokers, 2))
        until(lambda: brokers.up() == {0, 1}, "the first two are up")
        assert brokers.flux("run", "-n1", "-g1", "sh", "-c", "flux getattr rank").stdout == "1\n"
        for rank, cores, gpus in ((2, 5, 2), (3, 1, 0)):
            brokers.broker(rank, prefix=shape(brokers, cores, gpus))
        until(lambda: brokers.up() == {0, 1, 2, 3}, "all are up")
        by_rank = {rank: brokers.flux("resource", "info", "-i", str(rank)).stdout.strip() for rank in range(4)}
        assert by_rank == {
            0: "1 Nodes, 2 Cores, 0 GPUs",
            1: "1 Nodes, 3 Cores, 1 GPUs",
            2: "1 Nodes, 5 Cores, 2 GPUs",
            3: "1 Nodes, 1 Cores, 0 GPUs",
        }
        assert len(brokers.flux("run", "-n11", "hostname").stdout.splitlines()) == 11
        assert brokers.flux("run", "-n1", "-c5", "-g2", "sh", "-c", "flux getattr rank").stdout == "2\n"
        # It comes again on a smaller node.
        brokers.brokers[2].terminate()
        brokers.brokers[2].wait(PATIENCE)
        until(lambda: 2 in brokers.down(), "it is down")
        brokers.broker(2, prefix=shape(brokers, 2))
        until(lambda: brokers.up() == {0, 1, 2, 3}, "all are up again")
        assert brokers.flux("resource", "info", "-i2").stdout.strip() == "1 Nodes, 2 Cores, 0 GPUs"
        assert "unsatisfiable" in brokers.flux("run", "-n1", "-g2", "hostname").stderr
