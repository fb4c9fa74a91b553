"""The gRPC server: decodes messages, calls a backend, and encodes its answers.

As in the original services, an error of a backend becomes the status UNKNOWN with its reason, and a malformed message
INTERNAL. Either fails only its own call.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from .backend import Backend, Pods, Unanswerable
from .messages import SERVICES, message

# The largest message in bytes, in either direction.
LARGEST = 64 * 2**20
# Bytes of a reason in encoded form. Clients accept 8 KiB of metadata with a response, and drop a longer reason
# entirely.
_LONGEST_REASON = 4000
_ZONE = "zone"

Handler = Callable[[Any], Awaitable[Any]]


class Tls(NamedTuple):
    """The TLS files of the server (PEM).

    `client_ca` are the certificates of the authorities that sign client certificates; None: clients need no
    certificate.
    """

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None


class Services:
    """The handlers of all methods, by service and method."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.handlers: dict[str, dict[str, Handler]] = {
            "fluxion.FluxionService": {"Match": self._match, "Cancel": self._cancel, "Init": self._init},
            "fluxcli.FluxcliService": {"Match": self._match_pods, "Cancel": self._cancel_pods},
            "service.ExternalPluginService": {
                "GetResources": self._get_resources,
                "ListGroups": self._list_groups,
                "GetGroup": self._get_group,
            },
        }

    async def _init(self, asked: Any) -> Any:
        answer = message("fluxion", "InitResponse")
        is_taken = await self._backend.init(asked.policy, asked.jgf)
        return answer(status=answer.INIT_SUCCESS if is_taken else answer.INIT_DENIED)

    async def _match(self, asked: Any) -> Any:
        answer = message("fluxion", "MatchResponse")
        found = await self._backend.match(asked.jobspec, asked.reservation)
        return answer(
            allocation=json.dumps(found.allocation),
            jobid=found.jobid,
            reserved=found.is_reserved,
            at=found.at,
            overhead=found.overhead,
            status=answer.MATCH_SUCCESS,
        )

    async def _cancel(self, asked: Any) -> Any:
        answer = message("fluxion", "CancelResponse")
        await self._backend.cancel(asked.jobID)
        return answer(jobID=asked.jobID, status=answer.CANCEL_SUCCESS)

    async def _match_pods(self, asked: Any) -> Any:
        pods = _pods(asked)
        found = await self._backend.match_pods(pods)
        node = message("fluxcli", "NodeAlloc")
        nodes = [node(nodeID=name, tasks=cores // pods.cores) for name, cores in found.cores]
        return message("fluxcli", "MatchResponse")(podID=asked.ps.id, nodelist=nodes, jobID=found.jobid)

    async def _cancel_pods(self, asked: Any) -> Any:
        await self._backend.cancel(asked.jobID)
        return message("fluxcli", "CancelResponse")(jobID=asked.jobID)

    async def _get_resources(self, asked: Any) -> Any:
        return message("service", "ResourceResponse")(graph=self._backend.resources())

    async def _list_groups(self, asked: Any) -> Any:
        groups = self._backend.groups()
        return message("service", "GroupResponse")(name=",".join(groups), size=len(groups))

    async def _get_group(self, asked: Any) -> Any:
        groups = self._backend.groups()
        if asked.group not in groups:
            raise Unanswerable(f"there is no group {asked.group!r}")
        return message("service", "GroupResponse")(name=asked.group, size=groups[asked.group])


def _pods(asked: Any) -> Pods:
    """The pods of a Fluence request. A pod without cpu has one core. Raises Unanswerable."""
    spec = asked.ps
    for name, value in (("cpu", spec.cpu), ("memory", spec.memory), ("gpu", spec.gpu), ("storage", spec.storage)):
        if value < 0:
            raise Unanswerable(f"ps.{name}: must be at least 0, not {value}")
    if asked.count < 1:
        raise Unanswerable(f"count: must be at least 1, not {asked.count}")
    return Pods(
        group=spec.id or spec.container,
        number=asked.count,
        cores=spec.cpu or 1,
        memory=spec.memory,
        gpus=spec.gpu,
        storage=spec.storage,
        in_zone=_ZONE in spec.labels,
    )


async def start(backend: Backend, address: str, tls: Tls | None = None) -> tuple[aio.Server, int]:
    """Serve all services on HOST:PORT, or on :PORT for all addresses.

    Returns the server and its port; port 0 in the address selects a free one. Raises OSError if it cannot listen there,
    ValueError for an invalid certificate.
    """
    sizes = [("grpc.max_receive_message_length", LARGEST), ("grpc.max_send_message_length", LARGEST)]
    # With port reuse, two servers on one port would each get some of the calls.
    address = f"[::]{address}" if address.startswith(":") else address
    server = aio.server(options=[*sizes, ("grpc.so_reuseport", 0)])
    for name, handlers in Services(backend).handlers.items():
        package = name.partition(".")[0]
        methods = {
            method: grpc.unary_unary_rpc_method_handler(
                _answering(handler, message(package, SERVICES[name][method][0])),
                response_serializer=message(package, SERVICES[name][method][1]).SerializeToString,
            )
            for method, handler in handlers.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            credentials = grpc.ssl_server_credentials(
                [(tls.key, tls.certificate)],
                root_certificates=tls.client_ca,
                require_client_auth=tls.client_ca is not None,
            )
            port = server.add_secure_port(address, credentials)
    except RuntimeError as exc:
        raise OSError(f"cannot listen at {address}: {exc}") from None
    await server.start()
    return server, port


def _answering(handler: Handler, request: Any) -> Any:
    """The method that decodes a request of this class and calls the handler."""

    async def answer(frame: bytes, context: Any) -> Any:
        left = context.time_remaining()
        if left is not None and left <= 0:
            # The client has given up. It would never learn the job's id, so it could not cancel the job.
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the call's deadline had already passed on arrival")
        try:
            return await handler(request.FromString(frame))
        except DecodeError as exc:
            why = f"not a valid {request.DESCRIPTOR.full_name}: {exc}"
            await context.abort(grpc.StatusCode.INTERNAL, sendable(why))
        except Unanswerable as exc:
            await context.abort(grpc.StatusCode.UNKNOWN, sendable(str(exc)))

    return answer


def sendable(reason: str) -> str:
    """A reason that gRPC can send: UTF-8, cut so that its percent-encoded form is not too long.

    Source: "gRPC over HTTP2", Status-Message.
    """
    text = reason[: _LONGEST_REASON + 1].encode("utf-8", "backslashreplace").decode()
    size = 0
    for place, character in enumerate(text):
        size += sum(1 if 0x20 <= byte <= 0x7E and byte != ord("%") else 3 for byte in character.encode())
        if size > _LONGEST_REASON:
            return f"{text[:place]}..."
    return text
