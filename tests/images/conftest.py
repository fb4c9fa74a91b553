from __future__ import annotations

import pytest

from built_view import BuiltView, build_view


@pytest.fixture(scope="session")
def built_view(tmp_path_factory: pytest.TempPathFactory) -> BuiltView:
    """Built once, at a folder of the tests."""
    return build_view(tmp_path_factory.mktemp("view") / "view")
