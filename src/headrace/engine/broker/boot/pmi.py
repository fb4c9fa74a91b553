"""Boot from PMI or Slurm: brokers exchange host name, endpoint and public key with one barrier.

After that, PMI is not used any more. Every broker has its own random key pair, and a parent admits exactly the keys of
its children. Inside a Flux job, the process manager is the shell of the enclosing instance, which also provides the
instance level.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Union

from headrace.engine.broker import signals
from headrace.engine.broker.boot import boot, slurm
from headrace.engine.broker.boot.boot import BootError, BootInfo
from headrace.engine.broker.boot.pmi_clients import Pmi1Client, Pmi2Client, PmiError, offers_pmi1, offers_pmi2
from headrace.engine.broker.boot.slurm import SlurmMeeting
from headrace.formats.spec import jobid
from headrace.formats.spec.topology import Topology

Launcher = Union[Pmi1Client, Pmi2Client, SlurmMeeting]


_METHODS: dict[str, tuple[Callable[[Mapping[str, str]], bool], type[Launcher]]] = {
    "pmi2": (offers_pmi2, Pmi2Client),
    "simple": (offers_pmi1, Pmi1Client),
    "slurm": (slurm.offered, SlurmMeeting),
}


def launcher(env: Mapping[str, str]) -> tuple[str, type[Launcher]] | None:
    """The boot method by which this process was launched, and its client; None if it was started by hand.

    FLUX_PMI_CLIENT_METHODS may give the order in which methods are tried; "single" among them ends the search. Methods
    that only Flux has are skipped. Raises BootError if none of the methods is available.
    """
    wanted = env.get("FLUX_PMI_CLIENT_METHODS", "").split()
    for name in wanted or _METHODS:
        offered, client = _METHODS.get(name, (None, None))
        if offered is not None and client is not None and offered(env):
            return name, client
        if name == "single":
            return None
    if wanted:
        raise BootError(
            f"FLUX_PMI_CLIENT_METHODS={' '.join(wanted)}: none of them is offered here, nor is single named"
        )
    return None


def from_launcher(
    method: str, client: type[Launcher], env: Mapping[str, str], rundir: str, attrs: Mapping[str, str]
) -> BootInfo:
    """Boot by an exchange with the other brokers, according to the given attributes. Raises BootError."""
    try:
        pmi = client(env)
        inherited = _inherited_hint(pmi, attrs, env) if method == "simple" else {}
        info = _exchange(pmi, rundir, {**attrs, **inherited}, env)
        info.method = method
        if method == "simple":
            info.attrs = {**_enclosing_job(pmi, env), **inherited}
        pmi.finalize()
    except (PmiError, ValueError) as exc:
        raise BootError(f"{method}: {exc}") from None
    return info


def _exchange(pmi: Launcher, rundir: str, attrs: Mapping[str, str], env: Mapping[str, str]) -> BootInfo:
    rank, size = pmi.rank, pmi.size
    if not 0 <= rank < size:
        raise PmiError(f"rank {rank}: must be less than the number of processes, which is {size}")
    topology = Topology(size, attrs.get("tbon.topo", "kary:32"))
    hostname = boot.local_hostname()
    info = BootInfo(rank, size, "simple", topology, hostname)
    if size == 1:
        info.hosts = [hostname]
        return info
    # An interrupt during pyzmq's import would be reported as an import error.
    signals.block()
    # Imported only here: an instance of one broker starts without ZeroMQ.
    from zmq.utils import z85

    signals.unblock()
    info.public_key, info.secret_key = boot.new_keys()
    children = topology.children(rank)
    connect = ""
    if children:
        tcp = boot.prefers_tcp(attrs)
        if not tcp and _share_node(pmi.lookup("PMI_process_mapping"), size, [rank, *children]):
            info.bind = connect = f"ipc://{rundir}/tbon-{rank}"
        else:
            from headrace.engine.broker.boot.address import address_of, hint_of

            # Listening at this address only keeps the tree off other interfaces.
            hint = hint_of(attrs, env)
            address = address_of(hostname, hint)
            try:
                port = boot.free_port(address)
            except OSError as exc:
                raise PmiError(f"cannot listen at {address} (tbon.interface-hint={hint}): {exc.strerror}") from None
            info.bind = connect = f"tcp://{address}:{port}"
            info.bind_ipv6 = False
    key = z85.decode(info.public_key).hex()
    pmi.put(f"headrace.{rank}", f"{hostname},{key},{connect}")
    pmi.barrier()
    if rank:
        host, key, info.parent_uri = pmi.get(f"headrace.{topology.parent(rank)}").split(",", 2)
        _check_reach(host, info.parent_uri, hostname, hostname, attrs, env)
        info.parent_key = z85.encode(bytes.fromhex(key))
    else:
        info.hosts = [pmi.get(f"headrace.{other}").split(",", 2)[0] for other in range(size)]
    for child in children:
        host, key, _ = pmi.get(f"headrace.{child}").split(",", 2)
        _check_reach(hostname, connect, host, hostname, attrs, env)
        info.members.add(z85.encode(bytes.fromhex(key)))
    return info


def _check_reach(host: str, uri: str, child: str, here: str, attrs: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Raise PmiError at both ends if the broker on host `child` could not connect to `host`.

    `here` is this host. Its routes are checked if it is the child's host, or if both brokers are on the same host.
    """
    if not uri.startswith("tcp://"):
        return
    from headrace.engine.broker.boot.address import hint_of, no_route, unreached

    address = uri[len("tcp://") :].rpartition(":")[0]
    # Tests simulate many hosts on one machine.
    text = "" if "FLUX_FAKE_HOSTNAME" in env else unreached(host, address, child, hint_of(attrs, env))
    why = no_route(address) if child in (host, here) else ""
    if why:
        text = f"{child} cannot reach {host} at {address}: {why}; tbon.interface-hint names another interface"
    if text:
        raise PmiError(text)


def _inherited_hint(pmi: Launcher, attrs: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """The enclosing instance's attribute `tbon.interface-hint`, unless the hint is set here."""
    own = ("FLUX_IPADDR_INTERFACE", "FLUX_IPADDR_HOSTNAME")
    if "tbon.interface-hint" in attrs or any(name in env for name in own):
        return {}
    hint = pmi.lookup("flux.tbon-interface-hint")
    return {"tbon.interface-hint": hint} if hint else {}


def _enclosing_job(pmi: Launcher, env: Mapping[str, str]) -> dict[str, str]:
    """The attributes of an instance that is a job; none for any other."""
    mapping = pmi.lookup("flux.taskmap")
    placed = {"broker.mapping": mapping} if mapping else {}
    level = pmi.lookup("flux.instance-level")
    if not level.isdigit():
        return placed
    attrs = {**placed, "instance-level": level, "jobid-path": env.get("FLUX_JOB_ID_PATH", "/")}
    # Real Flux sets this to 1 if the parent confines the job to its resources, so that the instance need not do so.
    attrs["constrained-resources"] = "0"
    with contextlib.suppress(ValueError):
        attrs["jobid"] = jobid.encode(jobid.parse(pmi.kvsname))
    if env.get("FLUX_URI"):
        attrs["parent-uri"] = env["FLUX_URI"]
    if env.get("FLUX_KVS_NAMESPACE"):
        attrs["parent-kvs-namespace"] = env["FLUX_KVS_NAMESPACE"]
    return attrs


def _share_node(mapping: str, size: int, ranks: Sequence[int]) -> bool:
    """True if a PMI process mapping of `size` processes places all `ranks` on one node."""
    if mapping.replace(" ", "") == f"(vector,(0,1,{size}))":
        return True
    if "),(" not in mapping.replace(" ", ""):
        # A single block may cover several nodes. An invalid mapping is treated the same.
        return False
    from headrace.formats.spec.taskmap import TaskMap, TaskMapError

    try:
        known = TaskMap.decode(mapping.replace(" ", ""))
    except TaskMapError:
        return False
    return known.ntasks == size and len({known.node_of(rank) for rank in ranks}) == 1
