from __future__ import annotations

import os
import pwd

import pytest

from headrace.service.store import StoreError, UseridTaken, tokens, users
from headrace.service.store.database import Store

OWN_NAME = pwd.getpwuid(os.getuid()).pw_name


def test_users_of_passwd_have_their_userid_and_others_one_of_the_range_for_good(store: Store) -> None:
    assert users.add(store, OWN_NAME, "long enough", False).userid == os.getuid()
    ann = users.add(store, "ann.example", "long enough", False)
    bob = users.add(store, "bob.example", "long enough", True)
    assert (ann.userid, bob.userid) == (200_000, 200_001)
    assert [(one.name, one.admin) for one in users.everybody(store)] == sorted(
        [(OWN_NAME, False), ("ann.example", False), ("bob.example", True)]
    )
    users.remove(store, "bob.example")
    assert users.add(store, "eve.example", "long enough", False).userid == 200_002
    assert users.names(store)[200_001] == "bob.example"
    # Another person may have the name now.
    again = users.add(store, "bob.example", "long enough", False)
    assert again.userid == 200_003 and not again.admin
    assert users.names(store)[200_001] == "bob.example (200001)"
    assert users.add(store, "far.example", "long enough", False, (7_000_000, 7_000_000)).userid == 7_000_000
    with pytest.raises(StoreError, match="no userid is left of 7000000-7000000"):
        users.add(store, "further", "long enough", False, (7_000_000, 7_000_000))


@pytest.mark.parametrize("name", ["", "1st", "a b", "-x", "a/b", "ä", "x" * 65, "a\n", "a:b"])
def test_what_no_name_can_be(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="cannot be a name"):
        users.add(store, name, "long enough", False)


def test_a_name_is_there_once(store: Store) -> None:
    users.add(store, "ann", "long enough", False)
    with pytest.raises(StoreError, match="there is a user 'ann' already"):
        users.add(store, "ann", "long enough", False)
    users.remove(store, "ann")
    for ask in (users.remove, users.one):
        with pytest.raises(StoreError, match="there is no user 'ann'"):
            ask(store, "ann")


def test_passwords_are_kept_as_hashes_of_argon2id(store: Store) -> None:
    ann = users.add(store, "ann", "pass word ä", False)
    with store.reading() as database:
        ((kept,),) = database.rows("SELECT password FROM users")
    assert kept.startswith("$argon2id$") and "pass word" not in kept
    assert users.verified(store, "ann", "pass word ä") == ann
    assert users.verified(store, "ann", "pass word a") is None and users.verified(store, "eve", "pass word ä") is None
    users.remove(store, "ann")
    assert users.verified(store, "ann", "pass word ä") is None and users.verified(store, "ann", "") is None
    for wrong in ("", "x" * 1025, "half \ud800 a character"):
        with pytest.raises(StoreError, match="a password "):
            users.add(store, "bob", wrong, False)


def test_a_new_password_ends_what_was_issued_for_the_old_one(store: Store) -> None:
    ann = users.add(store, "ann", "long enough", False)
    token, _ = tokens.issue(store, ann, 60)
    users.change(store, "ann", "long and new")
    assert tokens.user_of(store, token) is None
    assert users.verified(store, "ann", "long enough") is None and users.verified(store, "ann", "long and new") == ann


def test_an_administrator_is_made_and_unmade(store: Store) -> None:
    ann = users.add(store, "ann", "long enough", False)
    token, _ = tokens.issue(store, ann, 60)
    assert users.change(store, "ann", admin=True).admin
    found = tokens.user_of(store, token)
    assert found is not None and found.admin
    assert not users.change(store, "ann", admin=False).admin and not users.one(store, "ann").admin


def test_a_user_takes_the_userid_that_passwd_has_and_leaves_the_former_to_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids: dict[str, int] = {}
    monkeypatch.setattr(pwd, "getpwnam", lambda name: _entry(name, ids[name]))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: _entry({id: name for name, id in ids.items()}[uid], uid))
    ann = users.add(store, "ann", "long enough", True)
    token, _ = tokens.issue(store, ann, 60)
    assert users.renumber(store, "ann") == ann and tokens.user_of(store, token) == ann
    ids.update(ann=1050)
    assert users.renumber(store, "ann") == ann._replace(userid=1050) == users.one(store, "ann")
    assert tokens.user_of(store, token) is None and users.verified(store, "ann", "long enough")
    assert users.names(store) == {1050: "ann", 200_000: "ann (200000)"}
    assert users.add(store, "own", "long enough", False).userid == 200_001
    # A newcomer has the id that ann had: she must go from it first.
    ids.update(ann=1051, bob=1050)
    with pytest.raises(UseridTaken, match="1050, is that of 'ann' in this service: headrace api users renumber ann"):
        users.add(store, "bob", "long enough", False)
    assert users.renumber(store, "ann").userid == 1051
    assert users.add(store, "bob", "long enough", False).userid == 1050
    # She leaves, and somebody by her name comes, and somebody else has her id.
    users.remove(store, "ann")
    ids.update(ann=1052, eve=1051)
    assert users.add(store, "ann", "long enough", False).userid == 1052
    assert users.add(store, "eve", "long enough", False).userid == 1051
    # An id that the store gave is another's now.
    del ids["eve"]
    ids.update(zed=200_001)
    assert users.renumber(store, "own").userid == 200_002
    assert users.add(store, "zed", "long enough", False).userid == 200_001
    with pytest.raises(StoreError, match="there is no user 'nosuch'"):
        users.renumber(store, "nosuch")


def _entry(name: str, uid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, "", "/", ""))
