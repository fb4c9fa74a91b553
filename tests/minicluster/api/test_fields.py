"""Empty names, paths and ports of 0 are the defaults, as in the Flux Operator."""

from __future__ import annotations

import pytest

from headrace.minicluster.api.fields import (
    DEFAULT_PORT,
    DEFAULT_VIEW_IMAGE,
    DEFAULT_VIEW_NAME,
    DEFAULT_VIEW_PATH,
    LeadBroker,
    View,
)


def test_empty_fields_of_the_view_are_the_defaults() -> None:
    view = View(name="", image="", mount_path="")
    assert (view.name, view.image, view.mount_path) == (DEFAULT_VIEW_NAME, DEFAULT_VIEW_IMAGE, DEFAULT_VIEW_PATH)
    assert view == View()


def test_given_fields_of_the_view_stay() -> None:
    view = View(name="flux", image="local/view:1", mount_path="/opt/flux/")
    assert (view.name, view.image, view.mount_path) == ("flux", "local/view:1", "/opt/flux/")


@pytest.mark.parametrize(("port", "used"), [(0, DEFAULT_PORT), (8051, 8051)])
def test_a_port_of_0_of_the_lead_broker_is_the_default(port: int, used: int) -> None:
    assert LeadBroker(address="lead.example", name="lead", size=2, port=port).port == used
