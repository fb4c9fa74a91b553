"""The service `accounting`: a client of the instance that answers `accounting.METHOD` from the database.

`flux account-service` and the module `accounting` run it as a process of its own. Reading is open to everybody. Changes
are for the owner and the administrators of the instance, and for coordinators within their bank. Each request is one
transaction, so a failed change leaves nothing behind. A new subcommand of `flux account` is a function in the file of
its subject and a line in METHODS.
"""

from __future__ import annotations

import errno
import os
import pwd
import sys
import traceback
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from headrace.engine.accounting import (
    banks,
    configs,
    coordinators,
    database,
    dialect,
    export,
    factors,
    overview,
    priorities,
    projects,
    queues,
    records,
    usage,
    usage_pages,
    usage_reports,
    users,
    why,
)
from headrace.engine.accounting.follow import Follower, Settings
from headrace.engine.accounting.requests import Caller, IntegrityError, Payload
from headrace.formats.spec.message import EVENT, REQUEST, ROLE_ADMIN, ROLE_OWNER, Message, error_response, response
from headrace.formats.spec.stdlib_parts import signal
from headrace.sched.accounting.rows import UNKNOWN_USER
from headrace.storage.database import Database, DatabaseError
from headrace.wire.client.handle import Handle
from headrace.wire.client.reactor import Reactor

NAME = "accounting"


class Method(NamedTuple):
    """`call` returns the text to print, "" for none; `open` methods only read, and are for guests, too.

    A method with `own_tables` needs tables that flux-accounting does not have. The payload of a method `for_caller` has
    the Caller as `caller`.
    """

    call: Callable[[Database, Payload], str]
    open: bool
    own_tables: bool = False
    for_caller: bool = False


OWNER = Caller(True)


METHODS: dict[str, Method] = {
    "view_user": Method(users.view_user, True),
    "list_users": Method(users.list_users, True),
    "add_user": Method(users.add_user, False),
    "delete_user": Method(users.delete_user, False),
    "edit_user": Method(users.edit_user, False),
    "edit_all_users": Method(users.edit_all_users, False),
    "sync_userids": Method(users.sync_userids, False),
    "view_bank": Method(banks.view_bank, True),
    "list_banks": Method(banks.list_banks, True),
    "bank_info": Method(banks.show_bank_info, True),
    "add_bank": Method(banks.add_bank, False),
    "delete_bank": Method(banks.delete_bank, False),
    "edit_bank": Method(banks.edit_bank, False),
    "view_queue": Method(queues.view_queue, True),
    "list_queues": Method(queues.list_queues, True),
    "add_queue": Method(queues.add_queue, False),
    "edit_queue": Method(queues.edit_queue, False),
    "delete_queue": Method(queues.delete_queue, False),
    "view_project": Method(projects.view_project, True),
    "list_projects": Method(projects.list_projects, True),
    "add_project": Method(projects.add_project, False),
    "delete_project": Method(projects.delete_project, False),
    "view_factor": Method(factors.view_factor, True),
    "list_factors": Method(factors.list_factors, True),
    "edit_factor": Method(factors.edit_factor, False),
    "reset_factors": Method(factors.reset_factors, False),
    "view_config": Method(configs.view_config, True),
    "list_configs": Method(configs.list_configs, True),
    "add_config": Method(configs.add_config, False),
    "edit_config": Method(configs.edit_config, False),
    "delete_config": Method(configs.delete_config, False),
    "add_coordinator": Method(coordinators.add_coordinator, False, own_tables=True),
    "delete_coordinator": Method(coordinators.delete_coordinator, False, own_tables=True),
    "list_coordinators": Method(coordinators.list_coordinators, True),
    "export_db": Method(export.export_db, False),
    "export_json": Method(export.export_json, False),
    "pop_db": Method(export.pop_db, False),
    "view_job_records": Method(records.view_job_records, True),
    "scrub_old_jobs": Method(records.scrub_old_jobs, False),
    "clear_usage": Method(usage.clear_usage, False, own_tables=True),
    "jobs": Method(priorities.list_priorities, True),
    "show_usage": Method(usage_reports.show_usage, True),
    "overview": Method(overview.overview, True, for_caller=True),
    "why": Method(why.why, True),
    "report": Method(usage_pages.show_report, True),
    "view_usage_report": Method(usage_reports.view_usage_report, True),
}


class Refused(Exception):
    """A request that failed, with the errno and the text of its answer."""

    def __init__(self, errnum: int, text: str) -> None:
        super().__init__(text)
        self.errnum = errnum


_NOT_ALLOWED = "Request requires owner credentials"

# What a guest gets in private mode from methods about jobs of all users: the key of the payload that names the user
# whose jobs are shown, and the attribute of the Caller that is its value; None for a refusal.
_PRIVATE = {
    "jobs": ("username", "user"),
    "view_job_records": ("user", "user"),
    "why": ("only_userid", "userid"),
    "report": None,
    "show_usage": None,
    "view_usage_report": None,
}


def restricted(name: str, payload: Payload, caller: Caller) -> Payload:
    """The payload of a guest's request in private mode: only the guest's own jobs are shown. Raises Refused."""
    if name not in _PRIVATE:
        return payload
    key, attribute = _PRIVATE[name] or ("", "")
    if not key or getattr(caller, attribute) in ("", -1):
        raise Refused(errno.EPERM, _NOT_ALLOWED)
    return {**payload, key: getattr(caller, attribute)}


def answer(data: Database, name: str, payload: Payload, caller: Caller) -> str:
    """The text of a method's answer. Raises Refused."""
    method = METHODS.get(name)
    if method is None:
        raise Refused(errno.ENOSYS, f"No service matching {NAME}.{name} is registered")
    shown = name.replace("_", "-")
    if method.for_caller:
        payload = {**payload, "caller": caller}
    try:
        # Writers of one database take turns from their first statement on; otherwise two could wait for each other.
        if method.own_tables and caller.is_admin:
            database.need_own_tables(data)
        with data.transaction(locked=not method.open):
            if method.open:
                dialect.read_one_state(data)
            if not (method.open or caller.is_admin or coordinators.may(data, caller.user, name, payload)):
                raise Refused(errno.EPERM, _NOT_ALLOWED)
            return method.call(data, payload)
    except Refused:
        raise
    except KeyError as exc:
        raise Refused(errno.EINVAL, f"{shown}: missing key in payload: {exc}") from exc
    except DatabaseError as exc:
        raise Refused(errno.EINVAL, f"{shown}: {type(exc.__cause__ or exc).__name__}: {exc}") from exc
    except Exception as exc:
        # The service goes on after an error of any method. The answer names it, as that of flux-accounting does.
        if not isinstance(exc, (ValueError, OSError, IntegrityError)):
            traceback.print_exception(exc)
        raise Refused(errno.EINVAL, f"{shown}: {type(exc).__name__}: {exc}") from exc


class Service:
    """Answers the requests of an instance until `stop`; with `settings`, also keeps the instance's books."""

    def __init__(self, handle: Handle, data: Database, settings: Settings | None = None) -> None:
        self.handle = handle
        self.data = data
        self.reactor = Reactor()
        self.follower = None if settings is None else Follower(handle, self.reactor, data, settings)

    def run(self) -> None:
        """Answer requests. Raises OSError when the connection to the broker is lost."""
        self.handle.message_callback = self._received
        self.handle.message_types = REQUEST | EVENT
        if self.follower is not None:
            self.follower.start()
        self.reactor.add_handle(self.handle)
        for signum in (signal.SIGTERM, signal.SIGINT):
            self.reactor.add_signal(signum, self.reactor.stop)
        self.reactor.run()

    def _received(self, msg: Message) -> None:
        if msg.type == EVENT:
            if self.follower is not None and msg.rolemask & ROLE_OWNER:
                self.follower.policy_loaded()
            return
        service, _, name = msg.topic.partition(".")
        if service != NAME:
            return
        try:
            if name == "shutdown_service":
                if not msg.rolemask & ROLE_OWNER:
                    raise Refused(errno.EPERM, _NOT_ALLOWED)
                self._respond(msg, response(msg))
                self.reactor.stop()
            elif name == "stats-get" and self.follower is not None:
                self._respond(msg, response(msg, self.follower.stats()))
            else:
                caller, payload = caller_of(self.data, msg.userid, msg.rolemask), msg.obj or {}
                if not caller.is_admin and name in _PRIVATE and self._is_private():
                    payload = restricted(name, payload, caller)
                self._respond(msg, response(msg, {name: answer(self.data, name, payload, caller) or 0}))
                if self.follower is not None and not METHODS[name].open:
                    self.follower.changed(name)
        except ValueError as exc:
            self._respond(msg, error_response(msg, errno.EPROTO, str(exc)))
        except Refused as exc:
            self._respond(msg, error_response(msg, exc.errnum, str(exc)))

    def _is_private(self) -> bool:
        """True if guests see only their own jobs (`access.private-mode`)."""
        access = self.handle.rpc("config.get").get().get("access")
        return isinstance(access, dict) and access.get("private-mode") is True

    def _respond(self, msg: Message, reply: Message) -> None:
        if not msg.noresponse:
            self.handle.send(reply)


def caller_of(data: Database, userid: int, rolemask: int) -> Caller:
    """The sender of a message. A user without an account has the name of an association with the user id."""
    is_admin = bool(rolemask & (ROLE_OWNER | ROLE_ADMIN))
    try:
        return Caller(is_admin, pwd.getpwuid(userid).pw_name, userid)
    except (KeyError, OverflowError):
        pass
    # Only the owner and administrators can choose the user id of an association.
    query = "SELECT DISTINCT username FROM association_table WHERE userid = :userid AND userid <> :unknown"
    names = data.rows(query, {"userid": userid, "unknown": UNKNOWN_USER})
    return Caller(is_admin, str(names[0][0]) if len(names) == 1 else "", userid)


def serve(
    path: str,
    background: bool,
    settings: Settings | None = None,
    access: database.Access = database.DEFAULT_ACCESS,
) -> int:
    """Run the service on a database until it is stopped; with `background`, in a process that outlives this one.

    With `settings`, it also keeps the books of the instance. PostgreSQL may then be away: requests are answered with an
    error, and the books follow when it is back.

    Raises DatabaseError, OSError.
    """
    if settings is None or not database.is_url(path):
        database.opened(path, access).close()
    handle = Handle()
    try:
        handle.rpc("service.add", {"service": NAME}).get()
    except OSError as exc:
        if exc.errno == errno.EEXIST:
            raise OSError(errno.EEXIST, "the service accounting is registered already") from None
        raise
    if settings is None:
        sys.stderr.write("registered accounting service\n")
        sys.stderr.flush()
    if background:
        _detach()
    # A connection does not survive fork(2), so it is opened here.
    data = database.awaited(path, msgspec.structs.replace(access, keeps_books=settings is not None))
    try:
        Service(handle, data, settings).run()
        handle.rpc("service.remove", {"service": NAME}).get()
    finally:
        data.close()
        handle.close()
    return 0


def _detach() -> None:
    """Go on in a child without a terminal, which holds no pipe of the caller open; this process ends."""
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
