"""The options for starting an instance, and its folders. Imports are kept few; see many.py."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from typing import Any

# A socket path has at most 108 bytes with its final NUL, and sockets need eleven after the run directory
# ("/local-1234").
_RUNDIR_LIMIT = 96
_SOCKET_PATH = 108
# The most bytes of a run directory or a URI: the size of Flux's buffers.
_LONGEST_PATH = 1024
# Modes of new folders.
_PRIVATE, _PASSABLE = 0o700, 0o711


class LaunchError(Exception):
    """The instance cannot be started; the text has the reason."""


class RundirError(LaunchError):
    """The run directory given to `flux start` cannot be used."""


class LaunchOptions:
    """The options of `flux start` and `flux broker`."""

    def __init__(
        self,
        *,
        size: int = 0,
        attrs: dict[str, str] | None = None,
        config: dict[str, Any] | None = None,
        config_path: str = "",
        command: list[str] | None = None,
        hosts: list[str] | None = None,
        rundir: str = "",
        verbose: int = 0,
        exit_mode: str = "",
        exit_timeout: float | None = None,
        start_mode: str = "all",
        clique: str = "single",
        broker_argv: list[str] | None = None,
        runs_other_program: bool = False,
        start_verbose: int = 0,
        on_state: Callable[[str], None] | None = None,
    ) -> None:
        self.size = size
        self.verbose = verbose
        # The exit mode is "any" (the default, also as "") or "leader": the failure of any broker, or only of the
        # leader, starts the exit timeout (seconds) of the others. None means that no timeout was given.
        self.exit_mode = exit_mode
        self.exit_timeout = exit_timeout
        # "leader" if only rank 0 is started.
        self.start_mode = start_mode
        # The brokers of a test instance that share a node: "single", "per-broker", "none", or a task map (RFC 34).
        self.clique = clique
        # The command line of a broker that is a separate program, without the initial program.
        self.broker_argv = broker_argv or []
        # True if a wrapper or the user's own `flux-broker` runs instead of our own program.
        self.runs_other_program = runs_other_program
        # The verbosity of `flux start` itself. `verbose` is that of the brokers.
        self.start_verbose = start_verbose
        # Called in the broker's process with the name of each state that it enters.
        self.on_state = on_state
        # `planned_rundir` is the path of a private run directory that was not created yet. `new_statedir` is a state
        # directory that was created by this start.
        self.planned_rundir = self.new_statedir = ""
        self.attrs = {} if attrs is None else attrs
        self.config = config or {}
        self.config_path = config_path
        self.command = command or []
        self.hosts = hosts or []
        self.rundir = rundir


def check(options: LaunchOptions) -> None:
    """Check the configuration, and add its attributes to `attrs`. Raises LaunchError."""
    from headrace.engine.broker.attrs import AttrError, AttrTable
    from headrace.formats.config.files import ConfigError

    try:
        os.getcwd()
    except OSError as exc:
        raise LaunchError(f"Unable to get current working directory: {exc.strerror}") from None
    try:
        if options.config:
            # Imported here, so that brokers without a configuration do not keep the tables in memory.
            from headrace.formats.config import keys as config_keys

            try:
                config_keys.check(options.config, options.config_path, os.getuid())
            except config_keys.RefusedTable as exc:
                if exc.module != "connector-local" or not isinstance(options.config["access"], dict):
                    raise
                # Invalid keys of the table [access] are refused by the broker itself in its first state, as in Flux.
                others = {name: table for name, table in options.config.items() if name != "access"}
                config_keys.check(others, options.config_path, os.getuid())
            options.attrs = {**config_keys.attributes(options.config), **options.attrs}
        AttrTable(options.attrs)
    except (AttrError, ConfigError) as exc:
        raise LaunchError(str(exc)) from None


def make_rundir(options: LaunchOptions, later: bool = False) -> str:
    """Create the run directory, and the `statedir` if it is requested; returns the run directory.

    It is the requested folder, or a new private one with a path short enough for sockets. With `later`, a private
    folder is only planned, and `create_planned_rundir` creates it. Raises LaunchError without leaving a folder behind.
    """
    statedir = options.attrs.get("statedir", "")
    if statedir:
        options.attrs["statedir"], new = _folder("statedir", statedir, _PRIVATE)
        options.new_statedir = options.attrs["statedir"] if new else ""
    try:
        path = _rundir(options)
        if "local-uri" in options.attrs:
            _check_local_uri(options.attrs["local-uri"], path)
    except LaunchError:
        _remove_new_statedir(options)
        raise
    _warn_if_guests_are_locked_out(options, path)
    if not later:
        create_planned_rundir(options)
    return path


def _warn_if_guests_are_locked_out(options: LaunchOptions, rundir: str) -> None:
    """Warn on stderr if guests could not reach the folders of their jobs in the run directory.

    Only relevant if jobs of guests run as their users.
    """
    if _rundir_mode(options) == _PASSABLE:
        from headrace.formats.config import guests

        why = guests.closed_folder(rundir)
        if why:
            text = f'rundir {rundir}: {guests.KEY} is "{guests.AS_USER}", and jobs of guests will fail: {why}'
            print(f"flux-broker: warning: {text}", file=sys.stderr, flush=True)


def _check_local_uri(uri: str, rundir: str) -> None:
    """Raise LaunchError for a URI at which no socket can be created."""
    path = uri.removeprefix("local://")
    if path == uri or not path.startswith("/"):
        raise LaunchError(f"local-uri is malformed: '{uri}' is not local:///PATH")
    size = len(os.fsencode(path))
    if size >= _LONGEST_PATH:
        raise LaunchError(f"local-uri of {size} bytes: buffer overflow")
    if size >= _SOCKET_PATH:
        raise LaunchError(f"local-uri length of {size} bytes exceeds max {_SOCKET_PATH - 1}, the path of a socket")
    folder = os.path.dirname(path)
    if folder == rundir:
        # The run directory may not exist yet.
        return
    try:
        mode = os.stat(folder).st_mode
    except OSError as exc:
        raise LaunchError(f"local-uri directory cannot stat {folder}: {exc.strerror}") from None
    if not stat.S_ISDIR(mode):
        raise LaunchError(f"local-uri directory {folder}: Not a directory")
    # root may write everywhere, so the mode is checked as well.
    if not mode & stat.S_IWUSR or not os.access(folder, os.W_OK | os.X_OK):
        raise LaunchError(f"local-uri directory permissions: {folder} is not writable")


def _remove_new_statedir(options: LaunchOptions) -> None:
    if options.new_statedir:
        os.rmdir(options.new_statedir)


def _rundir(options: LaunchOptions) -> str:
    if options.rundir and not os.path.isdir(options.rundir):
        why = _why_no_folder(options.rundir)
        raise RundirError(f"{options.rundir}: {why[0].lower() + why[1:] if why[:3] == 'Not' else why}")
    given = options.attrs.get("rundir") or options.rundir
    if given:
        if len(os.fsencode(given)) > _RUNDIR_LIMIT:
            size = len(os.fsencode(given))
            raise LaunchError(f"rundir length of {size} bytes exceeds max {_RUNDIR_LIMIT} to allow for sockets in it")
        path, new = _folder("rundir", given, _rundir_mode(options))
        if os.stat(path).st_mode & stat.S_ISVTX:
            # A folder that many users share, such as /tmp.
            return _new_path(options, path)
        # An existing folder is not removed at the end.
        options.attrs.setdefault("rundir-cleanup", "1" if new else "0")
        return path
    base = os.environ.get("TMPDIR") or "/tmp"
    if len(os.fsencode(base)) >= _LONGEST_PATH:
        raise LaunchError(f"rundir buffer overflow: TMPDIR has {len(os.fsencode(base))} bytes")
    if not os.path.isdir(base):
        raise LaunchError(f"cannot create directory in {base}: {_why_no_folder(base)}; set TMPDIR to another folder")
    if len(os.fsencode(base)) > _RUNDIR_LIMIT - 14:
        base = "/tmp"
    return _new_path(options, base)


def _why_no_folder(path: str) -> str:
    return "Not a directory" if os.path.exists(path) else "No such file or directory"


def _new_path(options: LaunchOptions, base: str) -> str:
    """An unpredictable path for a new folder.

    Importing package tempfile would take longer than this.
    """
    while not options.planned_rundir or os.path.lexists(options.planned_rundir):
        options.planned_rundir = os.path.join(os.path.abspath(base), f"flux-{os.urandom(4).hex()}")
    return options.planned_rundir


def create_planned_rundir(options: LaunchOptions) -> None:
    """Create the run directory that `make_rundir` has planned, if it has. Raises LaunchError."""
    path, options.planned_rundir = options.planned_rundir, ""
    if path:
        try:
            _make_folder(path, _rundir_mode(options))
        except OSError as exc:
            _remove_new_statedir(options)
            base = os.path.dirname(path)
            raise LaunchError(
                f"cannot create directory in {base}: {exc.strerror}; set TMPDIR to another folder"
            ) from None


def _rundir_mode(options: LaunchOptions) -> int:
    """The mode of the run directory.

    Guests whose jobs run as their users have folders in it: they can traverse it, but not list it.
    """
    if not options.config:
        return _PRIVATE
    from headrace.formats.config import guests

    return _PASSABLE if guests.submit(options.config) == guests.AS_USER else _PRIVATE


def _make_folder(path: str, mode: int) -> None:
    """Create a folder regardless of the umask. Raises OSError."""
    os.mkdir(path, _PRIVATE)
    if mode != _PRIVATE:
        os.chmod(path, mode)


def _folder(attribute: str, path: str, mode: int) -> tuple[str, bool]:
    """The absolute path of a writable folder, created if needed, and whether it is new.

    Its parent must exist: otherwise a mistyped path would be created. Raises LaunchError.
    """
    path, new = os.path.abspath(path), True
    try:
        _make_folder(path, mode)
    except FileExistsError:
        new = False
    except OSError as exc:
        parent = os.path.dirname(path)
        if isinstance(exc, FileNotFoundError):
            # mkdir(2) fails this way in /proc, which cannot have new folders.
            why = f"no folder can be made in {parent}" if os.path.isdir(parent) else f"there is no folder {parent}"
            raise LaunchError(f"{attribute} {path}: {why}") from None
        raise LaunchError(f"{attribute} {path}: {exc.strerror}") from None
    if not os.path.isdir(path):
        raise LaunchError(f"{attribute} {path}: Not a directory")
    # Another owner could replace our files. A volume of a pod belongs to root.
    if (owner := os.stat(path).st_uid) not in (0, os.getuid()):
        raise LaunchError(f"{attribute} {path} is not owned by instance owner: it is user {owner}'s")
    if not os.access(path, os.W_OK | os.X_OK):
        raise LaunchError(f"{attribute} {path}: not writable")
    return path, new
