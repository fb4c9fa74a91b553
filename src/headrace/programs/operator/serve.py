"""The operator as a program: its names, its controllers and its webhook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.flux_jobs.operator import admission as jobs_admission
from headrace.flux_jobs.operator.controller import ForeignClusters
from headrace.k8s.metrics_api import CUSTOM, EXTERNAL
from headrace.k8s.objects.kinds import MINICLUSTERS, MUTATING, VALIDATING
from headrace.k8s.runtime import program
from headrace.k8s.runtime.admission.reviews import Handler
from headrace.k8s.runtime.api import Api, ApiError
from headrace.k8s.runtime.controller import Shared
from headrace.minicluster.operator import admission
from headrace.minicluster.operator.controller import Operator, Options
from headrace.minicluster.operator.metrics import routes
from headrace.minicluster.operator.names import (
    CONFIGURATION,
    JOBS_CONFIGURATION,
    JOBS_PATH,
    LEASE,
    METRICS_ROLE,
    OPERATOR,
    WEBHOOK,
    WEBHOOK_PATH,
)


async def serve(serving: program.Serving, options: Options) -> int:
    """Run the operator until SIGTERM or SIGINT (status 0), or until its Lease is lost (status 1: restart)."""

    made: list[Operator] = []

    def build(shared: Shared) -> Mapping[str, Handler]:
        made.append(Operator(shared, options))
        shared.at_end.append(made[0].links.close)
        shared.at_end.append(ForeignClusters(shared, options.cluster_domain).links.close)
        return {
            WEBHOOK_PATH: admission.handler(_stored_in(shared.api)),
            JOBS_PATH: jobs_admission.handler(options.images),
        }

    def owned_elsewhere(name: str, owner: str) -> None:
        made[0].metrics_elsewhere(name, owner)

    def unanswered(why: str) -> None:
        made[0].metrics_unanswered(why)

    operator = program.Program(
        component=OPERATOR,
        lease=LEASE,
        webhook=WEBHOOK,
        configurations=((VALIDATING, CONFIGURATION), (MUTATING, JOBS_CONFIGURATION)),
        build=build,
        namespaces=options.namespaces,
        api_services=(CUSTOM, EXTERNAL) if options.metrics_api else (),
        api_services_role=METRICS_ROLE,
        routes=lambda refusal: routes(lambda: made[0].clusters, refusal) if options.metrics_api else (),
        owned_elsewhere=owned_elsewhere,
        unanswered=unanswered,
    )
    return await program.serve(serving, operator)


def _stored_in(api: Api) -> admission.Lookup:
    async def stored(namespace: str, name: str) -> dict[str, Any] | None:
        # The cache may lack a maxSize that was raised just before this scale request.
        try:
            return await api.get(MINICLUSTERS, namespace, name)
        except ApiError as exc:
            if exc.status != 404:
                raise
            return None

    return stored
