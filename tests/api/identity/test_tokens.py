from __future__ import annotations

from headrace.api.identity import tokens as module
from headrace.api.identity.tokens import Tokens


def test_a_token_is_valid_for_its_time_and_kept_as_a_hash() -> None:
    now = [0.0]
    tokens = Tokens(10, lambda: now[0])
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
    tokens = Tokens(10)
    first = tokens.issue()
    others = [tokens.issue() for _ in range(module.MOST)]
    assert not tokens.valid(first) and tokens.valid(others[0]) and len(set(others)) == module.MOST


def test_ended_tokens_are_forgotten() -> None:
    now = [0.0]
    tokens = Tokens(10, lambda: now[0])
    for _ in range(3):
        tokens.issue()
    now[0] = 20.0
    tokens.issue()
    assert len(tokens._ends) == 1
