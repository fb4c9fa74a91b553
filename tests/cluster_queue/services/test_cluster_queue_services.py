"""Clients whose stubs are protoc's own talk to `headrace fluxqueue match`, a process."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from fluxion_clients import Clients, compiled
from self_signed import self_signed

from headrace.cluster_queue.services import server as services
from headrace.cluster_queue.services.backend import Unanswerable
from headrace.cluster_queue.services.given_graph import GivenGraph
from headrace.cluster_queue.services.messages import message
from headrace.cluster_queue.services.server import LARGEST, Tls, sendable
from waiting import PATIENCE

HEADRACE = str(Path(sys.executable).parent / "headrace")
UNKNOWN = grpc.StatusCode.UNKNOWN


def vertex(number: int, kind: str, path: str, **more: Any) -> dict[str, Any]:
    """A vertex as flux-sched's JGF of version 1 has it."""
    name = path.rpartition("/")[2]
    meta = {"type": kind, "basename": kind, "name": name, "id": 0, "uniq_id": number, "rank": -1, "size": 1, "unit": ""}
    return {"id": str(number), "metadata": {**meta, "exclusive": False, "paths": {"containment": path}, **more}}


def graph(zones: int = 2, nodes: int = 2, cores: int = 4, memories: int = 2, gpus: int = 0) -> str:
    """A cluster as Fluence describes one: subnets, in these nodes with a basename of their own, GiB of memory apart."""
    vertices, edges = [vertex(0, "cluster", "/cluster0")], []

    def add(above: int, kind: str, path: str, **more: Any) -> int:
        number = len(vertices)
        vertices.append(vertex(number, kind, path, **more))
        edges.append({"source": str(above), "target": str(number), "metadata": {"subsystem": "containment"}})
        edges.append({"source": str(number), "target": str(above), "metadata": {"subsystem": "containment"}})
        edges[-2]["metadata"]["relation"], edges[-1]["metadata"]["relation"] = "contains", "in"
        return number

    for zone in range(zones):
        subnet = add(0, "subnet", f"/cluster0/zone{zone}", basename="zone", id=zone)
        for one in range(nodes):
            number = zone * nodes + one
            path = f"/cluster0/zone{zone}/host-{number}-x{number}"
            node = add(subnet, "node", path, basename=f"host-{number}-x", id=number)
            for kind, count in (("core", cores), ("memory", memories), ("gpu", gpus)):
                for place in range(count):
                    size = {"size": 1024, "unit": "MB"} if kind == "memory" else {}
                    add(node, kind, f"{path}/{kind}{place}", id=place, **size)
    return json.dumps({"graph": {"nodes": vertices, "edges": edges}})


def jobspec(slots: int, cores: int = 1, duration: int = 3600) -> str:
    slot = {"type": "slot", "count": slots, "label": "task", "with": [{"type": "core", "count": cores}]}
    system = {"system": {"duration": duration}}
    return json.dumps({"version": 1, "resources": [slot], "attributes": system, "tasks": []})


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    return compiled(tmp_path_factory.mktemp("stubs"))


@contextmanager
def serving(line: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`headrace fluxqueue match` with these words; the process, and the line that says where it listens."""
    process = subprocess.Popen(
        [HEADRACE, *shlex.split(line)[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        said = process.stdout.readline()
        assert said, process.stderr.read()
        yield process, said
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with serving("headrace fluxqueue match --port 0 --json") as (_, said):
        yield json.loads(said)["port"]


@pytest.fixture
def clients(server: int, stubs: SimpleNamespace) -> Iterator[Clients]:
    with grpc.insecure_channel(f"127.0.0.1:{server}") as channel:
        yield Clients(stubs, channel)


def refused(call: Any, *arguments: Any, **more: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **more)
    return caught.value.code(), caught.value.details()


def names(allocation: str) -> list[str]:
    """The basenames of the nodes of an allocation, as clients read them."""
    vertices = [one["metadata"] for one in json.loads(allocation)["graph"]["nodes"]]
    return [one["basename"] for one in vertices if one["type"] == "node"]


def test_a_match_tells_its_nodes_and_a_cancel_gives_them_back(clients: Clients) -> None:
    assert clients.init(graph(), "lonode") == clients.messages.fluxion.InitResponse.INIT_SUCCESS
    first = clients.match(jobspec(2, 4))
    assert (first.jobid, first.reserved, first.at, first.status) == (1, False, 0, 0)
    assert sorted(names(first.allocation)) == ["host-0-x", "host-1-x"]
    assert clients.match(jobspec(2, 4)).jobid == 2
    code, text = refused(clients.match, jobspec(1))
    assert (code, text) == (UNKNOWN, "no room now: insufficient resources: core x1 short (1 wanted, 0 free)")
    assert clients.cancel(1).status == clients.messages.fluxion.CancelResponse.CANCEL_SUCCESS
    # A match that was refused has taken no id.
    again = clients.match(jobspec(2, 4))
    assert (again.jobid, sorted(names(again.allocation))) == (3, ["host-0-x", "host-1-x"])
    assert refused(clients.cancel, 1) == (UNKNOWN, "there is no job 1")


def test_a_match_with_reservation_is_reserved_when_there_is_no_room(clients: Clients) -> None:
    clients.init(graph(zones=1, nodes=1))
    assert not clients.match(jobspec(1, 4, duration=500), reservation=True).reserved
    later = clients.match(jobspec(1, 4), reservation=True)
    assert (later.reserved, later.at, later.jobid, names(later.allocation)) == (True, 500, 2, ["host-0-x"])
    code, text = refused(clients.match, jobspec(1, 5), reservation=True)
    assert code is UNKNOWN and text.startswith("unsatisfiable request: ")
    # What is reserved is no one else's then, and free again once it is cancelled.
    assert clients.match(jobspec(1, 4), reservation=True).at == 4100
    clients.cancel(2)
    assert clients.match(jobspec(1, 4), reservation=True).at == 500


@pytest.mark.parametrize("reservation", [False, True])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (jobspec(17), "need 17 slot(s) of 1 core(s), only 16 such slot(s) available (total cores: 16)"),
        (jobspec(1, 5), "need 1 slot(s) of 5 core(s), only 0 such slot(s) available (total cores: 16)"),
        (
            jobspec(1).replace("3600", '60, "constraints": {"hostlist": ["elsewhere"]}'),
            "need 1 slot(s) of 1 core(s), only 0 such slot(s) available (total cores: 0); no node has host elsewhere",
        ),
        (
            jobspec(1, duration=4 * 10**9),
            "attributes.system.duration: must be at most 3153600000 seconds here, not 4000000000",
        ),
    ],
)
@pytest.mark.parametrize("is_full", [False, True])
def test_what_can_never_be_met_is_told_as_such(
    clients: Clients, text: str, why: str, reservation: bool, is_full: bool
) -> None:
    clients.init(graph())
    if is_full:
        clients.match(jobspec(16))
    assert refused(clients.match, text, reservation) == (UNKNOWN, f"unsatisfiable request: {why}")


def test_a_reservation_that_has_no_time_is_refused_with_what_is_short(clients: Clients) -> None:
    clients.init(graph(zones=1, nodes=1))
    clients.match(jobspec(3, duration=0))
    why = "no room now: insufficient resources: core x1 short (2 wanted, 1 free)"
    held = "; jobs without a known end hold the requested resources"
    assert refused(clients.match, jobspec(2), reservation=True) == (UNKNOWN, why + held)


def test_init_begins_anew_and_a_wrong_one_changes_nothing(clients: Clients) -> None:
    clients.init(graph(zones=1, nodes=1))
    clients.match(jobspec(1))
    for text, problem in (
        ("", "JGF"),
        ("{}", "graph"),
        ('{"graph": {"nodes": {}}}', "nodes"),
        ('{"graph": {"nodes": []}}', "jgf: "),
        (graph().replace('"target": "3"', '"target": "99"'), "there is no vertex '99'"),
    ):
        code, why = refused(clients.init, text)
        assert code is UNKNOWN and problem in why, text
    code, why = refused(clients.init, graph(), "no-such")
    assert code is UNKNOWN and why.startswith("policy: must be one of ")
    assert clients.match(jobspec(1)).jobid == 2
    clients.init(graph(zones=1, nodes=1))
    assert clients.match(jobspec(1)).jobid == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "jobspec: must be a mapping"),
        ("resources: [", "while parsing"),
        ("resources: []", "resources"),
        ("resources: [{type: zork, count: 1}]", "unsatisfiable request: need 1 zork, the whole system has 0"),
        (jobspec(0), "count"),
        (jobspec(1, duration=-1), "attributes.system.duration"),
        ("[" * 100_000, "jobspec: "),
        (jobspec(1).replace('"duration": 3600', '"duration": 1, "constraints": {"zork": 1}'), "jobspec: "),
    ],
)
def test_wrong_jobspecs_are_refused(clients: Clients, text: str, problem: str) -> None:
    clients.init(graph())
    code, why = refused(clients.match, text)
    assert code is UNKNOWN and problem in why
    assert not why.startswith("Unexpected")
    assert clients.match(jobspec(1)).jobid == 1


def test_pods_of_fluence_get_nodes_and_tasks(clients: Clients) -> None:
    clients.init(graph(gpus=1), "lonode")
    found = clients.match_pods(3, id="team/first", container="team/first", cpu=2, memory=2**30)
    assert (found.podID, found.jobID) == ("team/first", 1)
    assert {one.nodeID: one.tasks for one in found.nodelist} == {"host-0-x": 2, "host-1-x": 1}
    # Without cpu a pod has a core; each of these has the GPU of its node.
    found = clients.match_pods(2, id="second", gpu=1)
    assert sorted(one.tasks for one in found.nodelist) == [1, 1]
    assert clients.groups() == ("team/first,second", 2)
    assert clients.group("team/first") == ("team/first", 3)
    assert refused(clients.group, "third") == (UNKNOWN, "there is no group 'third'")
    assert clients.cancel_pods(1).jobID == 1
    assert clients.groups() == ("second", 1)
    assert refused(clients.cancel_pods, 1) == (UNKNOWN, "there is no job 1")
    for wrong in ({"cpu": -1}, {"memory": -1}, {"gpu": -1}, {"storage": -1}, {"count": 0}):
        code, why = refused(clients.match_pods, **wrong)
        assert code is UNKNOWN and next(iter(wrong)) in why


def test_pods_of_no_group_are_in_none(clients: Clients) -> None:
    clients.init(graph())
    assert clients.match_pods(2).jobID == 1
    assert clients.groups() == ("", 0)
    assert refused(clients.group, "") == (UNKNOWN, "there is no group ''")


def test_pods_with_the_label_zone_are_on_one_node(clients: Clients) -> None:
    clients.init(graph(), "lonode")
    assert len(clients.match_pods(6, cpu=1).nodelist) == 2
    (one,) = clients.match_pods(4, cpu=1, labels=["zone"]).nodelist
    assert (one.nodeID, one.tasks) == ("host-2-x", 4)
    assert refused(clients.match_pods, 5, cpu=1, labels=["zone"])[0] is UNKNOWN


def test_the_graph_is_told_as_it_was_sent(clients: Clients) -> None:
    text = graph()
    clients.init(text)
    assert clients.resources() == text


def test_frames_that_are_wrong_cost_their_call_alone(clients: Clients, server: int) -> None:
    clients.init(graph())
    for service in ("fluxion.FluxionService", "fluxcli.FluxcliService"):
        code, why = refused(clients.channel.unary_unary(f"/{service}/Match"), b"\xff\xff\xff")
        assert code is grpc.StatusCode.INTERNAL and why.startswith(f"not a valid {service.partition('.')[0]}.MatchReq")
    code, _ = refused(clients.channel.unary_unary("/fluxion.FluxionService/Grow"), b"")
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert refused(clients.match, "x" * (LARGEST + 1))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    with socket.create_connection(("127.0.0.1", server)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(1000))
    assert clients.match(jobspec(1)).jobid == 1


@pytest.mark.parametrize("name", ["g" * 20_000, "é" * 5_000, "\n%" * 5_000])
def test_a_long_reason_is_cut_rather_than_lost(clients: Clients, name: str) -> None:
    clients.init(graph())
    code, why = refused(clients.group, name)
    assert code is UNKNOWN and why.endswith("...")
    assert f"there is no group {name!r}".startswith(why[:-3]) and len(why) > 600


def test_a_reason_is_sent_whole_where_it_is_short() -> None:
    assert sendable("a" * 4000) == "a" * 4000
    assert sendable("a" * 4001) == "a" * 4000 + "..."
    # A byte beyond ASCII is sent as three.
    assert sendable("é" * 667) == "é" * 666 + "..."
    assert sendable("\ud800") == "\\ud800"


class Call:
    """What gRPC has the method of a call know of it: its deadline is so many seconds away."""

    def __init__(self, left: float | None) -> None:
        self.left = left

    def time_remaining(self) -> float | None:
        return self.left

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Unanswerable(code.name)


def test_a_call_whose_deadline_has_passed_takes_nothing() -> None:
    """As its client never learns what it would have to cancel."""
    carried_out: list[Any] = []

    async def handler(asked: Any) -> None:
        carried_out.append(asked)

    answer = services._answering(handler, message("fluxion", "MatchRequest"))
    for left in (None, 1.0):
        asyncio.run(answer(b"", Call(left)))
    with pytest.raises(Unanswerable, match="DEADLINE_EXCEEDED"):
        asyncio.run(answer(b"", Call(0.0)))
    assert len(carried_out) == 2


def test_it_says_where_it_listens_and_ends_in_order(stubs: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(graph(zones=1, nodes=1))
    line = f"headrace fluxqueue match --host 127.0.0.1 --port 0 --policy lonode --graph {tmp_path}/graph.json"
    with serving(line) as (process, said):
        address = said.removeprefix("listening at ").strip()
        with grpc.insecure_channel(address) as channel:
            assert Clients(stubs, channel).match_pods(1, cpu=4).nodelist[0].nodeID == "host-0-x"
        port = address.rpartition(":")[2]
        taken = serving(f"headrace fluxqueue match --port {port}")
        with pytest.raises(AssertionError, match=f"cannot listen at 127.0.0.1:{port}"), taken:
            pass
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE) == ("", "")
        assert process.returncode == 0


def test_with_certificates_only_clients_with_theirs_are_served(stubs: SimpleNamespace, tmp_path: Path) -> None:
    server, _ = self_signed(tmp_path, "server")
    client, key = self_signed(tmp_path, "client")
    line = f"headrace fluxqueue match --port 0 --json --tls-cert {tmp_path}/server.crt --tls-key {tmp_path}/server.key"
    with serving(f"{line} --client-ca {tmp_path}/client.crt") as (_, said):
        assert json.loads(said)["tls"] is True
        address = f"127.0.0.1:{json.loads(said)['port']}"
        with grpc.secure_channel(address, grpc.ssl_channel_credentials(server, key, client)) as channel:
            assert Clients(stubs, channel).init(graph()) == 0
        for without in (grpc.ssl_channel_credentials(server), grpc.ssl_channel_credentials(server, key, server)):
            with grpc.secure_channel(address, without) as channel:
                assert refused(Clients(stubs, channel).init, graph())[0] is grpc.StatusCode.UNAVAILABLE
        with grpc.insecure_channel(address) as channel:
            assert refused(Clients(stubs, channel).init, graph())[0] is grpc.StatusCode.UNAVAILABLE


def test_no_authority_is_not_the_same_as_an_empty_one(tmp_path: Path) -> None:
    """The second has signed no client's certificate, so none is served."""
    certificate, key = self_signed(tmp_path, "server")

    async def resources(client_ca: bytes | None) -> None:
        server, port = await services.start(GivenGraph(), "127.0.0.1:0", Tls(certificate, key, client_ca))
        credentials = grpc.ssl_channel_credentials(certificate)
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            try:
                await channel.unary_unary("/service.ExternalPluginService/ListGroups")(b"")
            finally:
                await server.stop(None)

    asyncio.run(resources(None))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        asyncio.run(resources(b""))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("headrace fluxqueue match --policy zork", "--policy: must be one of "),
        ("headrace fluxqueue match --port 99999", "argument --port: '99999' is not a port"),
        ("headrace fluxqueue match --graph /no/such/file", "/no/such/file"),
        ("headrace fluxqueue match --graph /dev/null", "--graph: "),
        ("headrace fluxqueue match --tls-cert /dev/null", "--tls-cert and --tls-key go together"),
        ("headrace fluxqueue match --client-ca /dev/null", "--client-ca needs both"),
    ],
)
def test_wrong_options_are_told(line: str, problem: str) -> None:
    with pytest.raises(AssertionError, match=r"headrace[- ]fluxqueue") as caught, serving(line):
        pass
    assert problem in str(caught.value)
