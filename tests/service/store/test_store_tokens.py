from __future__ import annotations

import pytest

from headrace.service.store import StoreError, tokens, users
from headrace.service.store.database import Store


def test_a_token_is_its_users_for_its_time_and_kept_as_a_hash(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    ann = users.add(store, "ann", "long enough", False)
    token, known = tokens.issue(store, ann, 60, "for scripts")
    assert tokens.user_of(store, token) == ann and tokens.user_of(store, token + "x") is None
    with store.reading() as database:
        assert token not in repr(database.rows("SELECT * FROM tokens"))
    assert tokens.listed(store) == [known] and known.ends == 1060.0 and known.note == "for scripts"
    now[0] = 1060.0
    assert tokens.user_of(store, token) is None and tokens.listed(store) == []
    tokens.issue(store, ann, 60)
    with store.reading() as database:
        assert database.rows("SELECT count(*) FROM tokens") == [(1,)]


def test_tokens_are_revoked_by_id_by_their_user_only(store: Store) -> None:
    ann, bob = (users.add(store, name, "long enough", False) for name in ("ann", "bob"))
    first, known = tokens.issue(store, ann, 60)
    second, _ = tokens.issue(store, ann, 60, session=True)
    other, _ = tokens.issue(store, bob, 60)
    assert [one.user for one in tokens.listed(store, "ann")] == ["ann", "ann"] and len(tokens.listed(store)) == 3
    for id, name in ((known.id, "bob"), ("nosuch", ""), ("", "ann")):
        with pytest.raises(StoreError, match="there is no valid token with the id"):
            tokens.revoke(store, id, name)
    assert tokens.revoke(store, known.id, "ann") == known
    assert tokens.user_of(store, first) is None and tokens.user_of(store, second) == ann
    tokens.revoke_itself(store, second)
    assert tokens.user_of(store, second) is None and tokens.user_of(store, other) == bob
    users.remove(store, "bob")
    assert tokens.user_of(store, other) is None


def test_a_user_has_so_many_and_the_oldest_makes_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST", 3)
    ann, bob = (users.add(store, name, "long enough", False) for name in ("ann", "bob"))
    kept, _ = tokens.issue(store, bob, 60)
    made = [tokens.issue(store, ann, 60)[0] for _ in range(4)]
    assert [tokens.user_of(store, one) for one in made] == [None, ann, ann, ann]
    assert tokens.user_of(store, kept) == bob
