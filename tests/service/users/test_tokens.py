from __future__ import annotations

from headrace.service.users import tokens as module
from headrace.service.users.tokens import Tokens


def test_a_token_is_valid_for_its_time_and_kept_as_a_hash() -> None:
    now = [0.0]
    tokens = Tokens(10, clock=lambda: now[0])
    one = tokens.issue()
    assert tokens.valid(one) and not tokens.valid("") and not tokens.valid(one + "x")
    assert one not in repr(vars(tokens)) and len(one) >= 43
    now[0] = 9.9
    assert tokens.valid(one)
    now[0] = 10.0
    assert not tokens.valid(one) and not tokens.use_up(one)


def test_a_token_that_is_used_up_is_not_valid_any_more() -> None:
    tokens = Tokens(10)
    one = tokens.issue()
    assert tokens.use_up(one) and not tokens.use_up(one) and not tokens.valid(one)


def test_tokens_have_a_bound() -> None:
    tokens = Tokens(1000)
    first = tokens.issue()
    others = [tokens.issue() for _ in range(module.MOST)]
    assert not tokens.valid(first) and tokens.valid(others[0]) and len(set(others)) == module.MOST


def test_ended_tokens_are_forgotten_and_make_room_first() -> None:
    now = [0.0]
    tokens = Tokens(10, clock=lambda: now[0])
    lasting, _ = tokens.issue_known(seconds=30)
    for _ in range(module.MOST - 1):
        tokens.issue()
    now[0] = 20.0
    tokens.issue()
    assert len(tokens._valid) == 2 and tokens.valid(lasting)


def test_tokens_are_listed_and_revoked_by_their_ids_without_themselves() -> None:
    tokens = Tokens(10, "ann")
    text, known = tokens.issue_known("for scripts", seconds=5)
    tokens.issue(session=True)
    assert [(one.user, one.note, one.session) for one in tokens.listed()] == [
        ("ann", "", True),
        ("ann", "for scripts", False),
    ]
    assert known.ends - known.issued == 5 and text not in repr(tokens.listed())
    assert tokens.revoke("nosuch") is None and tokens.revoke(known.id) == known
    assert not tokens.valid(text) and tokens.revoke(known.id) is None
