"""Whose request it is, by each kind of `--auth`."""

from __future__ import annotations

import asyncio
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from headrace.service.settings import Settings
from headrace.service.store import database, users
from headrace.service.users import credential, csrf, userids
from headrace.service.users.access import MOST_FAILURES, Access, TooManyFailures, Unauthenticated
from headrace.service.users.accounts import ProxiedUsers
from headrace.service.users.userids import UseridMismatch


def request(*headers: tuple[str, str]) -> Request:
    lines = [(name.lower().encode(), value.encode("latin-1")) for name, value in (("host", "localhost:5000"), *headers)]
    scope: Any = {"type": "http", "method": "GET", "path": "/", "scheme": "http", "server": ("localhost", 5000)}
    return Request({**scope, "query_string": b"", "headers": lines, "client": ("127.0.0.1", 1)})


def name(access: Access, *headers: tuple[str, str], cookie: bool = False) -> str:
    found = access.of_cookie if cookie else access.of_header
    return asyncio.run(found(request(*headers))).name


def refused(access: Access, *headers: tuple[str, str], cookie: bool = False) -> str:
    with pytest.raises(Unauthenticated) as caught:
        name(access, *headers, cookie=cookie)
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path) -> str:
    found = str(tmp_path / "api.sqlite")
    store = database.open_file(found)
    users.add(store, "ann.x", "a password", admin=False)
    users.add(store, "boss.x", "a password", admin=True)
    return found


def proxied(path: str, adds_unknown: bool = False) -> Access:
    return Access(Settings(auth="proxy", database=path, proxy_header="X-Remote-User", adds_unknown=adds_unknown))


def test_without_authentication_everybody_is_the_owner() -> None:
    access = Access(Settings(auth="none"))
    owner = name(access)
    assert owner and name(access, cookie=True) == owner


def test_the_owners_token_in_a_header_or_in_the_cookie_of_this_port() -> None:
    access = Access(Settings(auth="token"))
    token = access.accounts.issue(asyncio.run(Access(Settings(auth="none")).of_header(request())))
    assert name(access, ("Authorization", f"bearer {token}"))
    assert name(access, ("Cookie", f"headrace-5000={token}"), cookie=True)
    for wrong in ("", token, f"Basic {token}", "Bearer x", "Bearer "):
        assert "token" in refused(access, ("Authorization", wrong))
    assert "`headrace api url`" in refused(access, ("Cookie", f"headrace-5001={token}"), cookie=True)
    # The header of a proxy means nothing here.
    assert refused(access, ("X-Remote-User", "root"))


def test_guesses_of_a_password_are_bounded(path: str) -> None:
    access = Access(Settings(auth="users", database=path))

    async def log_in(password: object) -> object:
        return await access.of_password(request(), "ann.x", password)

    async def guess() -> None:
        assert await log_in("a password") is not None and await log_in(None) is None
        assert [await log_in("x") for _ in range(MOST_FAILURES)] == [None] * MOST_FAILURES
        with pytest.raises(TooManyFailures):
            await log_in("a password")
        # A name that no user can have is not kept.
        assert [await access.of_password(request(), "x" * 1_000_000, "x") for _ in range(9)] == [None] * 9

    asyncio.run(guess())


@pytest.mark.parametrize("cookie", [False, True])
def test_a_proxy_names_users_of_the_store_with_their_roles(path: str, cookie: bool) -> None:
    access = proxied(path)
    assert name(access, ("X-Remote-User", "ann.x"), cookie=cookie) == "ann.x"
    found = asyncio.run(access.of_header(request(("X-Remote-User", "boss.x"))))
    assert found.sees_all and not asyncio.run(access.of_header(request(("X-Remote-User", "ann.x")))).sees_all
    assert "not a user of this service" in refused(access, ("X-Remote-User", "new.x"), cookie=cookie)
    assert refused(access, ("X-Remote-User", ""), cookie=cookie) and refused(access, cookie=cookie)
    twice = (("X-Remote-User", "boss.x"), ("X-Remote-User", "ann.x"))
    assert "more than once" in refused(access, *twice, cookie=cookie)
    assert asyncio.run(access.of_password(request(), "ann.x", "a password")) is None


def test_unknown_users_are_added_where_that_is_asked_for_but_not_those_of_the_system(path: str) -> None:
    access = proxied(path, adds_unknown=True)

    async def ask() -> None:
        found = await access.of_header(request(("X-Remote-User", "new.x")))
        assert found.name == "new.x" and found.userid == 200_002 and not found.sees_all
        both = await asyncio.gather(*(access.of_header(request(("X-Remote-User", "two.x"))) for _ in range(3)))
        assert {one.userid for one in both} == {200_003}
        # One who was removed is not made anew.
        access.accounts.remove("new.x")
        for wrong in ("root", "daemon", "no name", "1x", "\u00e4", "new.x"):
            with pytest.raises(Unauthenticated, match="not a user of this service"):
                await access.of_header(request(("X-Remote-User", wrong)))

    asyncio.run(ask())


def test_a_token_of_a_user_is_valid_behind_a_proxy_where_it_names_none(path: str) -> None:
    access = proxied(path)
    ann = asyncio.run(access.of_header(request(("X-Remote-User", "ann.x"))))
    token = ("Authorization", f"Bearer {access.accounts.issue(ann)}")
    assert name(access, token) == "ann.x" and name(access, token, ("X-Remote-User", "boss.x")) == "boss.x"


def test_forms_of_one_proxied_user_are_not_those_of_another(path: str) -> None:
    access = proxied(path)
    tokens = []
    for user in ("ann.x", "boss.x"):
        asked = request(("X-Remote-User", user))
        asked.state.identity = asyncio.run(access.of_cookie(asked))
        tokens.append(csrf.token(asked))
        csrf.check(asked, tokens[-1])
    assert tokens[0] != tokens[1]
    with pytest.raises(csrf.Forged):
        csrf.check(asked, tokens[0])


@pytest.mark.parametrize("auth", ["users", "proxy", "pam"])
def test_a_user_who_has_another_userid_in_passwd_is_refused_by_each_way_in(
    path: str, auth: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(userids, "LASTING", 0.0)
    ids = {"ann.x": 200_000}
    monkeypatch.setattr(pwd, "getpwnam", lambda name: pwd.struct_passwd((name, "x", ids[name], 9, "", "/", "")))
    access = Access(Settings(auth=auth, database=path, proxy_header="X-Remote-User", adds_unknown=True))

    async def right(*_: object) -> bool:
        return True

    if auth == "pam":
        monkeypatch.setattr(access.accounts, "_passwords", SimpleNamespace(right=right))

    async def ask() -> None:
        token = access.accounts.issue(credential.user("ann.x", 200_000))
        ways = [
            lambda: access.of_header(request(("Authorization", f"Bearer {token}"))),
            lambda: access.of_cookie(
                request(("X-Remote-User", "ann.x") if auth == "proxy" else ("Cookie", f"headrace-5000={token}"))
            ),
        ]
        if auth != "proxy":
            ways.append(lambda: access.of_password(request(), "ann.x", "a password"))
        for way in ways:
            found = await way()
            assert found is not None and found.userid == 200_000
        ids["ann.x"] = 1050
        for way in ways:
            with pytest.raises(UseridMismatch, match="200000 in this service and 1050 in passwd"):
                await way()
        # A newcomer whose userid is that of a user of the store is told so.
        ids["new.x"] = 200_000
        if auth != "users":
            assert isinstance(access.accounts, ProxiedUsers)
            with pytest.raises(UseridMismatch, match=r"200000, is that of 'ann.x' in this service"):
                await access.accounts.of_name("new.x")

    asyncio.run(ask())
