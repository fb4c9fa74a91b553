"""The ASGI application: routes, middleware, and responses to errors."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from starlette.responses import Response

import headrace
from headrace.service import jobs, metrics, problems, service
from headrace.service.audit import Audit
from headrace.service.broker_link import Broker
from headrace.service.fields import BadBody, BadFields
from headrace.service.metrics import Collector, Timed
from headrace.service.middleware import Guard, Methods
from headrace.service.pages import login
from headrace.service.pages import routes as page_routes
from headrace.service.rest.v1 import answers as v1_answers
from headrace.service.rest.v1 import login as v1_login
from headrace.service.rest.v1 import routes as v1_routes
from headrace.service.rest.v2 import errors as v2_errors
from headrace.service.rest.v2 import routes as v2_routes
from headrace.service.rest.v2.idempotency import BadKey, Keys, OtherBody
from headrace.service.service import Service
from headrace.service.settings import Settings
from headrace.service.users.access import Access


def create_app(settings: Settings) -> FastAPI:
    """Create the ASGI application, without a request to the broker. `app.state.service` is the Service."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.service.close()

    # FastAPI's own documentation pages load scripts from other sites, so they are switched off.
    app = FastAPI(title="Headrace", version=headrace.__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.service = Service(settings, Broker(settings.uri), Access(settings))
    app.state.keys = Keys()
    app.state.collector = Collector()
    for router in (
        v1_login.router,
        v1_routes.router,
        *v2_routes.ROUTERS,
        login.public,
        login.router,
        page_routes.router,
        metrics.router,
    ):
        app.include_router(router)
    app.mount("/static", page_routes.static)
    for kind in (*problems.EXCEPTIONS, BadBody, BadFields, BadKey, OtherBody):
        app.add_exception_handler(kind, _answer)
    app.add_middleware(Methods)
    app.add_middleware(Guard, hosts=settings.hosts)
    if settings.audit:
        app.add_middleware(Audit, path=settings.audit)
    app.add_middleware(Timed, collector=app.state.collector)
    return app


async def _answer(request: Request, exc: Exception) -> Response:
    exc = await _seen(request, exc)
    if request.url.path.startswith("/v1/"):
        return v1_answers.problem(request, exc)
    if request.url.path.startswith("/v2/"):
        return v2_errors.answer(exc)
    if request.url.path == metrics.PATH:
        return metrics.answer(exc)
    return await page_routes.answer(request, exc)


async def _seen(request: Request, exc: Exception) -> Exception:
    """The exception to answer with: NoSuchJob in place of a refusal about another user's job."""
    id = request.path_params.get("jobid", request.path_params.get("id"))
    if isinstance(exc, PermissionError) and id is not None and hasattr(request.state, "identity"):
        try:
            await jobs.one(service.of(request).link, jobs.read_id(id))
        except (OSError, jobs.NoSuchJob) as hidden:
            return hidden
    return exc
