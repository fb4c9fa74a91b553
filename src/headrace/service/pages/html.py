"""Rendering of pages: a template, with the values that every page needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from headrace.service import service
from headrace.service.pages import view
from headrace.service.users import csrf

_HERE = Path(__file__).parent

static = StaticFiles(directory=_HERE / "static")
_templates = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(moment=view.moment, machine_moment=view.machine_moment, elapsed=view.elapsed)


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Render a template of `templates/` with these values.

    The template also gets the CSRF token for its forms as `forms`.
    """
    here = service.of(request)
    identity = getattr(request.state, "identity", None)
    text = _templates.get_template(template).render(
        instance=here.uri,
        # Before the login, a page has neither the navigation nor the address of the instance.
        has_access=identity is not None,
        user=identity if here.access.accounts.several else None,
        logs_out=identity is not None and here.access.has_sessions,
        shows_experiments=identity is not None and here.experiments.are_for(identity),
        path=request.url.path,
        forms=csrf.token(request),
        **values,
    )
    return HTMLResponse(text, status)


async def changes(request: Request) -> dict[str, str]:
    """The fields of a form that changes something. Raises csrf.Forged.

    If several fields have the same name, the last one counts.
    """
    found = {name: value for name, value in (await request.form()).multi_items() if isinstance(value, str)}
    csrf.check(request, found.pop(csrf.FIELD, None))
    return found
