"""The cluster queue as a program: its names, its controller and its webhook."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from headrace.cluster_queue.admission import judge
from headrace.cluster_queue.controller import FluxqueueController
from headrace.cluster_queue.history_requests import HistoryRequests
from headrace.cluster_queue.names import CONFIGURATION, DEFAULT_NAMESPACE, FLUXQUEUE, HOLD_PATH, WEBHOOK
from headrace.cluster_queue.store.database import Address
from headrace.cluster_queue.store.writer import Writer
from headrace.k8s.objects.kinds import MUTATING
from headrace.k8s.runtime import program
from headrace.k8s.runtime.admission.reviews import Handler
from headrace.k8s.runtime.controller import Shared

if TYPE_CHECKING:
    from headrace.cluster_queue.services.live_graph import Grpc


def build(
    shared: Shared, store: Address | None = None, grpc: Grpc | None = None, namespace: str = ""
) -> Mapping[str, Handler]:
    controller = FluxqueueController(shared, namespace or shared.api.cluster.namespace)
    if store:
        controller.store = Writer(shared, store, controller.cycle.chronicle.all_now)
    HistoryRequests(shared, store)
    if grpc:
        # The messages of gRPC need packages of the extra `fluxqueue`.
        from headrace.cluster_queue.services.live_graph import LiveGraph, LiveServices

        graph = LiveGraph(controller, grpc.queue)
        shared.controllers.append(LiveServices(graph, grpc))
    return {HOLD_PATH: Handler(partial(judge, known=controller))}


async def serve(serving: program.Serving, store: Address | None = None, grpc: Grpc | None = None) -> int:
    """Run the queue until SIGTERM or SIGINT (status 0), or until its Lease is lost (status 1: restart)."""
    fluxqueue = program.Program(
        component=FLUXQUEUE,
        lease=FLUXQUEUE,
        webhook=WEBHOOK,
        configurations=((MUTATING, CONFIGURATION),),
        namespace=DEFAULT_NAMESPACE,
        build=lambda shared: build(shared, store, grpc, serving.lease_namespace),
    )
    return await program.serve(serving, fluxqueue)
