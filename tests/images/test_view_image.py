"""The image of the view, beside the view itself: who it runs as, and what it runs."""

from __future__ import annotations

from headrace.images.layer import file
from headrace.images.release_images import image_of


def test_it_runs_in_pods_that_want_a_user_other_than_root_and_name_none() -> None:
    config = image_of({"bin/tool": file(b"")}).config
    # The kubelet takes numbers alone for another user than root.
    assert int(config["User"].partition(":")[0]) > 0
    assert (config["Entrypoint"], config["Cmd"]) == (["/headrace-copy"], ["/mnt/flux/view"])
