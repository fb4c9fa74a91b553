from __future__ import annotations

import pytest
from sqlalchemy import Engine, text

from headrace.service.store import tokens, users
from headrace.service.store.errors import StoreError


def test_a_token_is_its_users_for_its_time_and_kept_as_a_hash(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    ann = users.add(engine, "ann", "long enough", False)
    token, known = tokens.issue(engine, ann, 60, "for scripts")
    assert tokens.user_of(engine, token) == ann and tokens.user_of(engine, token + "x") is None
    with engine.connect() as connection:
        assert token not in repr(connection.execute(text("SELECT * FROM tokens")).all())
    assert tokens.listed(engine) == [known] and known.ends == 1060.0 and known.note == "for scripts"
    now[0] = 1060.0
    assert tokens.user_of(engine, token) is None and tokens.listed(engine) == []
    tokens.issue(engine, ann, 60)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM tokens")).scalar_one() == 1


def test_tokens_are_revoked_by_id_by_their_user_only(engine: Engine) -> None:
    ann, bob = (users.add(engine, name, "long enough", False) for name in ("ann", "bob"))
    first, known = tokens.issue(engine, ann, 60)
    second, _ = tokens.issue(engine, ann, 60, session=True)
    other, _ = tokens.issue(engine, bob, 60)
    assert [one.user for one in tokens.listed(engine, "ann")] == ["ann", "ann"] and len(tokens.listed(engine)) == 3
    for id, name in ((known.id, "bob"), ("nosuch", ""), ("", "ann")):
        with pytest.raises(StoreError, match="there is no valid token with the id"):
            tokens.revoke(engine, id, name)
    assert tokens.revoke(engine, known.id, "ann") == known
    assert tokens.user_of(engine, first) is None and tokens.user_of(engine, second) == ann
    tokens.revoke_itself(engine, second)
    assert tokens.user_of(engine, second) is None and tokens.user_of(engine, other) == bob
    users.remove(engine, "bob")
    assert tokens.user_of(engine, other) is None


def test_a_user_has_so_many_and_the_oldest_makes_room(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST", 3)
    ann, bob = (users.add(engine, name, "long enough", False) for name in ("ann", "bob"))
    kept, _ = tokens.issue(engine, bob, 60)
    made = [tokens.issue(engine, ann, 60)[0] for _ in range(4)]
    assert [tokens.user_of(engine, one) for one in made] == [None, ann, ann, ann]
    assert tokens.user_of(engine, kept) == bob
