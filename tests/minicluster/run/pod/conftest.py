"""The view that pods run, built once of this working copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.images import view as images


@pytest.fixture(scope="session")
def view(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that an init container would fill. Skips where a view cannot be built."""
    folder = tmp_path_factory.mktemp("view") / "view"
    try:
        images.write(images.build(images.choose_interpreter()), folder)
    except images.BuildError as exc:
        pytest.skip(f"needs a view: {exc}")
    for parent in (folder.parent, folder.parent.parent):
        parent.chmod(0o755)
    return folder
