from __future__ import annotations

import os
import pwd

import pytest
from sqlalchemy import Engine, text

from headrace.api.store import tokens, users
from headrace.api.store.errors import StoreError

OWN_NAME = pwd.getpwuid(os.getuid()).pw_name


def test_users_of_passwd_have_their_userid_and_others_one_of_the_range_for_good(engine: Engine) -> None:
    assert users.add(engine, OWN_NAME, "long enough", False).userid == os.getuid()
    ann = users.add(engine, "ann.example", "long enough", False)
    bob = users.add(engine, "bob.example", "long enough", True)
    assert (ann.userid, bob.userid) == (200_000, 200_001)
    assert [(one.name, one.admin) for one in users.everybody(engine)] == sorted(
        [(OWN_NAME, False), ("ann.example", False), ("bob.example", True)]
    )
    users.remove(engine, "bob.example")
    assert users.add(engine, "eve.example", "long enough", False).userid == 200_002
    assert users.names(engine)[200_001] == "bob.example"
    again = users.add(engine, "bob.example", "long enough", False)
    assert again.userid == 200_001 and not again.admin
    assert users.add(engine, "far.example", "long enough", False, (7_000_000, 7_000_000)).userid == 7_000_000
    with pytest.raises(StoreError, match="no userid is left of 7000000-7000000"):
        users.add(engine, "further", "long enough", False, (7_000_000, 7_000_000))


@pytest.mark.parametrize("name", ["", "1st", "a b", "-x", "a/b", "ä", "x" * 65, "a\n", "a:b"])
def test_what_no_name_can_be(engine: Engine, name: str) -> None:
    with pytest.raises(StoreError, match="cannot be a name"):
        users.add(engine, name, "long enough", False)


def test_a_name_is_there_once(engine: Engine) -> None:
    users.add(engine, "ann", "long enough", False)
    with pytest.raises(StoreError, match="there is a user 'ann' already"):
        users.add(engine, "ann", "long enough", False)
    users.remove(engine, "ann")
    for ask in (users.remove, users.one):
        with pytest.raises(StoreError, match="there is no user 'ann'"):
            ask(engine, "ann")


def test_passwords_are_kept_as_hashes_of_argon2id(engine: Engine) -> None:
    ann = users.add(engine, "ann", "pass word ä", False)
    with engine.connect() as connection:
        kept = connection.execute(text("SELECT password FROM users")).scalar_one()
    assert kept.startswith("$argon2id$") and "pass word" not in kept
    assert users.verified(engine, "ann", "pass word ä") == ann
    assert users.verified(engine, "ann", "pass word a") is None and users.verified(engine, "eve", "pass word ä") is None
    users.remove(engine, "ann")
    assert users.verified(engine, "ann", "pass word ä") is None and users.verified(engine, "ann", "") is None
    for wrong in ("", "x" * 1025, "half \ud800 a character"):
        with pytest.raises(StoreError, match="a password "):
            users.add(engine, "bob", wrong, False)


def test_a_new_password_ends_what_was_issued_for_the_old_one(engine: Engine) -> None:
    ann = users.add(engine, "ann", "long enough", False)
    token, _ = tokens.issue(engine, ann, 60)
    users.set_password(engine, "ann", "long and new")
    assert tokens.user_of(engine, token) is None
    assert users.verified(engine, "ann", "long enough") is None and users.verified(engine, "ann", "long and new") == ann


def test_an_administrator_is_made_and_unmade(engine: Engine) -> None:
    ann = users.add(engine, "ann", "long enough", False)
    token, _ = tokens.issue(engine, ann, 60)
    assert users.set_admin(engine, "ann", True).admin
    found = tokens.user_of(engine, token)
    assert found is not None and found.admin
    assert not users.set_admin(engine, "ann", False).admin and not users.one(engine, "ann").admin
