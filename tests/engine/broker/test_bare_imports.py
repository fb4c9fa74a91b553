"""What brokers leave out of packages is there as soon as somebody wants it, and then all of it."""

from __future__ import annotations

import subprocess
import sys

_TALK = """
import asyncio, ssl

async def main():
    async def answer(reader, writer):
        writer.write(b"no TLS spoken here\\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=ssl.create_default_context())
    except Exception as exc:
        print(type(exc).__name__)

asyncio.run(main())
"""


def output(code: str) -> str:
    code = f"import sys; sys.path[:0] = {sys.path}\n{code}"
    # Without what site-packages import at every start.
    return subprocess.run([sys.executable, "-S", "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_brokers_load_no_tls_and_hide_none() -> None:
    started = (
        "from headrace.engine.broker import bare_imports; bare_imports.load_asyncio();"
        "import headrace.engine.broker.broker\n"
    )
    assert output(started + "print({'ssl', '_ssl'} & set(sys.modules))") == "set()"
    assert output(started + "import ssl; print(ssl.Purpose.SERVER_AUTH.shortname)") == "serverAuth"


def test_tls_is_there_in_full_when_it_is_given_back() -> None:
    code = (
        "from headrace.engine.broker import bare_imports\nbare_imports.load_asyncio()\nbare_imports.complete()\n"
        + _TALK
    )
    assert output(code) == output(_TALK) == "SSLError"


def test_nothing_is_taken_from_who_has_it_already() -> None:
    assert (
        output("import asyncio; from headrace.engine.broker import bare_imports; bare_imports.load_asyncio()\n" + _TALK)
        == "SSLError"
    )


def test_locks_are_seen_to_after_forks_again() -> None:
    code = """
import os, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
pid = os.fork()
if not pid:
    print(threading.active_count(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""
    began = "from headrace.engine.broker import bare_imports; bare_imports.load_asyncio()\n"
    assert output(began + code) == "2"
    assert output(began + "bare_imports.complete()\n" + code) == "1"


def test_what_a_module_forks_keeps_its_signals_from_the_broker() -> None:
    code = """
import os, signal
from headrace.engine.broker import signals
from headrace.engine.broker import bare_imports
bare_imports.load_asyncio()
reader, writer = os.pipe()
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)
signals.catch()
bare_imports.complete()
bare_imports.complete()
ready, begun = os.pipe()
pid = os.fork()
if not pid:
    os.write(begun, b"x")
    signal.pause()
os.read(ready, 1)
os.kill(pid, signal.SIGTERM)
_, status = os.waitpid(pid, 0)
os.close(writer)
print(os.WTERMSIG(status), signal.SIGTERM in os.read(reader, 9))
"""
    assert output(code) == "15 False"


def test_msgspec_comes_without_packages_that_no_message_needs_and_they_are_whole_afterwards() -> None:
    started = "from headrace.engine.broker import bare_imports; bare_imports.load_small()\n"
    assert output(started + "print({'uuid', 'decimal', 'msgspec.inspect'} & set(sys.modules))") == "set()"
    used = "import uuid, decimal, msgspec.inspect, msgspec.json\n"
    used += "print(uuid.UUID(int=1).int, decimal.Decimal('1.5'), msgspec.inspect.type_info(int), "
    used += "msgspec.json.decode(msgspec.json.encode({'a': [1.5]})))"
    assert output(started + used) == "1 1.5 IntType(gt=None, ge=None, lt=None, le=None, multiple_of=None) {'a': [1.5]}"


def test_modules_that_few_functions_use_come_with_their_first_use() -> None:
    started = "from headrace.engine.broker.launch import preload; preload.preload(True)\n"
    rare = "{'inspect', 'json', 'linecache', 'locale', 'pickle', 'platform', 'random', 'textwrap', 'importlib.util'}"
    # On later versions pyzmq's compiled part imports inspect, which imports linecache.
    unavoidable = "set()" if sys.version_info < (3, 12) else "{'inspect', 'linecache'}"
    assert output(started + f"print({rare} & set(sys.modules) - {unavoidable})") == "set()"
    used = """
import asyncio, inspect, traceback, zmq
socket = zmq.Context().socket(zmq.PAIR)
other = zmq.Context.instance().socket(zmq.PAIR)
port = socket.bind_to_random_port("tcp://127.0.0.1")
other.connect(f"tcp://127.0.0.1:{port}")
other.send_pyobj({"a": (1,)})
print(socket.recv_pyobj())
other.send_json([2.5])
print(socket.recv_json())
socket.close()
other.close()
print(asyncio.iscoroutinefunction(len), inspect.isbuiltin(len))
try:
    raise ValueError(3)
except ValueError as exc:
    print(traceback.format_exception(exc)[-1].strip())
"""
    assert output(started + used).splitlines() == ["{'a': (1,)}", "[2.5]", "False True", "ValueError: 3"]
