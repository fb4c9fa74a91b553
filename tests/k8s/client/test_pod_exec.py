"""The Status that ends a command in a pod, as the status of the command."""

from __future__ import annotations

import pytest

from headrace.k8s.client.pod_exec import BrokenExecError, exit_status


def test_success_is_0_and_a_failure_has_its_exit_code() -> None:
    assert exit_status({"status": "Success"}) == 0
    causes = [{"reason": "Other", "message": "x"}, {"reason": "ExitCode", "message": "5"}]
    assert exit_status({"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}) == 5


def test_a_command_that_was_not_started_is_told() -> None:
    with pytest.raises(BrokenExecError, match="no such file"):
        exit_status({"status": "Failure", "message": "exec: no such file"})
    with pytest.raises(BrokenExecError, match="not started"):
        exit_status({})
