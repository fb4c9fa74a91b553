"""The view in containers of all kinds of images, unmodified: what the user's command sees and says, and its status."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from running_operator import MiniClusters

# What Pod Security's profile `restricted` asks of every container.
RESTRICTED: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 12345,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def container(image: str, command: str, **more: Any) -> list[dict[str, Any]]:
    return [{"image": image, "command": command, **more}]


def said(miniclusters: MiniClusters, name: str) -> list[str]:
    """The lines that tasks have written."""
    return sorted(line for line in miniclusters.log(name).splitlines() if line.startswith("task"))


@pytest.mark.parametrize("distribution", ["debian", "rocky", "alpine", "busybox"])
def test_an_image_with_a_shell(miniclusters: MiniClusters, image: Callable[[str], str], distribution: str) -> None:
    """The command is a shell's, and finds the image's own programs, not ours."""
    command = "sh -c 'echo task $FLUX_TASK_RANK of $(hostname): $(command -v python3) $PYTHONPATH'"
    miniclusters.apply("shell", size=2, tasks=2, containers=container(image(distribution), command))
    status = miniclusters.phase("shell", "Finished")
    assert status["exitCode"] == 0
    assert [line.rstrip() for line in said(miniclusters, "shell")] == ["task 0 of shell-0:", "task 1 of shell-1:"]


@pytest.mark.parametrize("path", ["/speak", "/bin/speak"])
def test_an_image_whose_program_needs_another_c_library_or_none(
    miniclusters: MiniClusters, image: Callable[[str], str], path: str
) -> None:
    """Scratch holds one static program, without a shell, /etc or /tmp; Alpine's is linked with musl."""
    name = image("scratch" if path == "/speak" else "alpine")
    miniclusters.apply("speaks", size=2, tasks=2, containers=container(name, f"{path} there"))
    miniclusters.phase("speaks", "Finished")
    assert said(miniclusters, "speaks") == [
        "task 0 on speaks-0 as 0 says there",
        "task 1 on speaks-1 as 0 says there",
    ]


def test_the_status_of_a_program_of_scratch_is_the_miniclusters(
    miniclusters: MiniClusters, image: Callable[[str], str]
) -> None:
    miniclusters.apply("fails", size=2, containers=container(image("scratch"), "/speak there 9"))
    status = miniclusters.phase("fails", "Failed")
    assert status["exitCode"] == 9


def test_shell_text_in_an_image_without_a_shell_is_refused_with_the_field(
    miniclusters: MiniClusters, image: Callable[[str], str]
) -> None:
    more = {"commands": {"pre": "echo before"}}
    miniclusters.apply("needs", size=1, containers=container(image("scratch"), "/speak there", **more))
    status = miniclusters.phase("needs", "Failed")
    assert "no shell" in miniclusters.log("needs")
    assert "pre" in json.dumps(status)


@pytest.mark.parametrize("distribution", ["debian", "scratch"])
def test_a_user_without_passwd_entry_on_a_read_only_root(
    miniclusters: MiniClusters, image: Callable[[str], str], distribution: str
) -> None:
    """In a namespace that enforces the profile `restricted`: neither root, nor anything of the image to be written."""
    miniclusters.cluster.kubectl(
        "label", "namespace", miniclusters.namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    command = "/speak there" if distribution == "scratch" else "sh -c 'echo task as $(id -u), $(touch /x 2>&1)'"
    security = {**RESTRICTED, "readOnlyRootFilesystem": True}
    miniclusters.apply(
        "strict",
        size=2,
        tasks=2,
        containers=container(image(distribution), command, securityContext=security),
        flux={"container": {"securityContext": security}},
    )
    miniclusters.phase("strict", "Finished")
    lines = said(miniclusters, "strict")
    assert len(lines) == 2
    assert all("as 12345" in line for line in lines)
    assert distribution == "scratch" or all("Read-only file system" in line for line in lines)
