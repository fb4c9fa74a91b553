from __future__ import annotations

import pytest

from headrace.service.users import access
from headrace.service.users.access import Attempts, TooManyFailures


def test_after_five_failures_within_a_minute_a_user_waits_at_that_address() -> None:
    now = [0.0]
    one = Attempts(lambda: now[0])
    for second in range(5):
        now[0] = float(second)
        one.check("ann", "192.0.2.1")
        one.failed("ann", "192.0.2.1")
    with pytest.raises(TooManyFailures, match="try again in 56 s"):
        one.check("ann", "192.0.2.1")
    one.check("bob", "192.0.2.1")
    one.check("ann", "192.0.2.2")
    now[0] = 60.0
    one.check("ann", "192.0.2.1")
    one.failed("ann", "192.0.2.1")
    with pytest.raises(TooManyFailures, match="try again in 1 s"):
        one.check("ann", "192.0.2.1")


def test_a_success_forgets_failures_and_pairs_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MOST_PAIRS", 2)
    one = Attempts(lambda: 0.0)
    for user in ("ann", "bob"):
        for _ in range(5):
            one.failed(user, "")
    one.succeeded("bob", "")
    one.check("bob", "")
    for user in ("bob", "eve"):
        one.failed(user, "")
    one.check("ann", "")
    assert len(one._failures) == 2
