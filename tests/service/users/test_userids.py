"""Names and userids of the store, which passwd may give to others: passwd is a table of the test's own here."""

from __future__ import annotations

import asyncio
import pwd
from typing import NamedTuple

import pytest

from headrace.service.users import userids
from headrace.service.users.userids import LASTING, UseridMismatch, Userids, mismatch


class Entry(NamedTuple):
    pw_name: str
    pw_uid: int


class Passwd:
    """`ids` are the userids by name; `asked` counts look-ups of names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **ids: int) -> None:
        self.ids = ids
        self.asked = 0
        monkeypatch.setattr(pwd, "getpwnam", self.by_name)
        monkeypatch.setattr(pwd, "getpwuid", self.by_id)

    def by_name(self, name: str) -> Entry:
        self.asked += 1
        return Entry(name, self.ids[name])

    def by_id(self, userid: int) -> Entry:
        return next((Entry(name, id) for name, id in self.ids.items() if id == userid), None) or self.by_name(
            f"#{userid}"
        )


def test_name_and_userid_are_those_of_passwd_or_nobodys_there(monkeypatch: pytest.MonkeyPatch) -> None:
    Passwd(monkeypatch, ann=1051, bob=1050)
    assert mismatch("ann", 1051) == mismatch("eve", 200_000) == ""
    mend = "headrace api users renumber ann, or users remove ann"
    assert mismatch("ann", 1050) == f"the userid of 'ann' is 1050 in this service and 1051 in passwd: {mend}"
    assert mismatch("ann", 200_000) == f"the userid of 'ann' is 200000 in this service and 1051 in passwd: {mend}"
    assert mismatch("eve", 1050).startswith("the userid of 'eve' in this service, 1050, is that of 'bob' in passwd: ")
    assert mismatch("eve", 1052, must_be_there=True) == ("'eve' has no entry in passwd: headrace api users remove eve")


def test_passwd_is_asked_once_for_a_user_and_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    passwd, now = Passwd(monkeypatch, ann=1050), [100.0]
    checked = Userids(clock=lambda: now[0])

    async def check() -> None:
        await asyncio.gather(*(checked.check("ann", 1050) for _ in range(100)))
        assert passwd.asked == 1
        passwd.ids["ann"] = 1051
        now[0] += LASTING - 0.1
        await checked.check("ann", 1050)
        now[0] += 0.2
        with pytest.raises(UseridMismatch, match="1050 in this service and 1051 in passwd"):
            await checked.check("ann", 1050)
        assert passwd.asked == 2

    asyncio.run(check())


def test_a_request_that_is_given_up_ends_no_look_up_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = Userids()

    async def give_up() -> None:
        loop, answer = asyncio.get_running_loop(), asyncio.Event()

        async def slow(*_: object) -> str:
            await answer.wait()
            return ""

        monkeypatch.setattr(userids.asyncio, "to_thread", slow)
        first, second = (loop.create_task(checked.check("ann", 1050)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        answer.set()
        await second
        assert first.cancelled()

    asyncio.run(give_up())
