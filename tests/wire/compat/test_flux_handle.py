"""`flux.Flux`, its messages, futures and watchers against a real instance."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from bindings import run


def test_topics_may_be_bytes_and_wrong_arguments_are_refused():
    lines = run(
        """
        import errno
        with h.rpc(b"broker.ping", {"seq": 3}) as call:
            print(call.wait_for(10).get()["seq"], h.event_subscribe(b"tick"), h.event_unsubscribe("tick"))
        def failing(fn, *args, **options):
            try:
                print("no error", fn(*args, **options))
            except Exception as exc:
                print(type(exc).__name__, errno.errorcode.get(getattr(exc, "errno", None)))
        failing(h.event_unsubscribe, "never.subscribed")
        failing(h.attr_set, "name", 1)
        failing(h.timer_watcher_create, -1, print)
        failing(h.rpc, None)
        failing(h.rpc, "broker.ping", object())
        failing(j.event_wait, None, 1, "start")
        call = h.rpc("broker.ping")
        call.then(print)
        failing(call.then, print)
        failing(h.rpc("kvs.wait-version", {"namespace": "primary", "rootseq": 99999}).wait_for, 0)
        """
    )
    assert lines == [
        "3 0 0",
        "FileNotFoundError ENOENT",
        "ValueError None",
        "OSError EINVAL",
        "OSError EINVAL",
        "TypeError None",
        "OSError EINVAL",
        "FileExistsError EEXIST",
        "TimeoutError ETIMEDOUT",
    ]


def test_the_configuration_is_asked_for_once_until_it_is_wanted_new():
    lines = run(
        """
        print(h.conf_get("a.b"))
        h.rpc("config.load", {"a": {"b": 1}}).get()
        print(h.conf_get("a.b"), h.conf_get("a.b", update=True), h.conf_get("a.c", default=2))
        """
    )
    assert lines == ["None", "None 1 2"]


def test_a_sent_request_is_answered_to_a_watcher():
    lines = run(
        """
        from flux.constants import FLUX_MSGTYPE_REQUEST, FLUX_MSGTYPE_RESPONSE
        from flux.message import Message
        h.service_register("echo").get()
        def serve(handle, watcher, msg, args):
            handle.respond(msg, msg.payload)
        def answered(handle, watcher, msg, args):
            print(msg.decode(), args)
            handle.reactor_stop()
        msg = Message()
        msg.topic = b"echo.it"
        msg.payload = {"a": [1, 2]}
        print(msg.decode(), msg.type_str)
        with h.msg_watcher_create(serve, FLUX_MSGTYPE_REQUEST, b"echo.*"):
            with h.msg_watcher_create(answered, FLUX_MSGTYPE_RESPONSE, "echo.*", args=5):
                print(h.send(msg), h.reactor_run() > 0)
        """
    )
    assert lines == ["(1, 'echo.it', '{\"a\": [1, 2]}') request", "(2, 'echo.it', '{\"a\": [1, 2]}') 5", "0 True"]


def test_what_no_watcher_walk_or_attribute_can_be_is_refused_at_once():
    lines = run(
        """
        import os
        from flux import kvs
        from flux.hostlist import Hostlist
        def refused(what, *args):
            try:
                what(*args)
            except (OSError, ValueError) as exc:
                print(type(exc).__name__)
        for signum in (-500, 0, 500):
            refused(h.signal_watcher_create, signum, print)
        refused(kvs.walk, "dir")
        refused(h.attr_remove, 1)
        refused(Hostlist("a[1-3]").find, "a4")
        print(Hostlist("a[1-3]").find("a3"))
        r, w = os.pipe()
        os.close(w)
        def ended(handle, watcher, fd, revents, args):
            print(fd == r, bool(revents), os.read(fd, 1))
            watcher.stop()
        h.fd_watcher_create(r, ended).start()
        h.reactor_run()
        """
    )
    assert lines == [*["OSError"] * 3, "ValueError", "ValueError", "FileNotFoundError", "2", "True True b''"]


def test_watchers_tell_what_they_are_about_and_need_not_hold_the_reactor():
    lines = run(
        """
        import os, signal
        from flux.constants import FLUX_POLLOUT
        r, w = os.pipe()
        def writable(handle, watcher, fd, revents, args):
            print("fd", fd == w, revents == FLUX_POLLOUT, args)
            watcher.stop()
        def signalled(handle, watcher, signum, args):
            print("signal", int(signum))
            watcher.destroy()
        seen = []
        prepare = h.prepare_watcher_create(lambda *_: seen.append("prepare")).start().unref()
        check = h.check_watcher_create(lambda *_: seen.append("check")).start().unref()
        far = h.timer_watcher_create(1000, print).start().unref()
        h.fd_watcher_create(w, writable, FLUX_POLLOUT, args=1).start()
        h.signal_watcher_create(signal.SIGUSR1, signalled).start()
        h.timer_watcher_create(0.01, lambda *_: os.kill(os.getpid(), signal.SIGUSR1)).start()
        print(h.reactor_run(), seen[:2], far.is_active())
        def turn(handle, watcher, what, args):
            args.append(1)
            if len(args) == 3:
                watcher.stop()
        turns = []
        h.idle_watcher_create(turn, turns).start()
        far.ref().stop()
        print(h.reactor_run(), len(turns))
        """
    )
    assert lines == ["fd True True 1", "signal 10", "0 ['prepare', 'check'] True", "0 3"]


def test_watchers_are_made_with_no_more_than_they_need():
    lines = run(
        """
        import os, signal
        from flux.constants import FLUX_POLLOUT
        from flux.core.watchers import FDWatcher, MessageWatcher, SignalWatcher, TimerWatcher
        r, w = os.pipe()
        FDWatcher(h, w, FLUX_POLLOUT, lambda h, watcher, fd, events, args: (print("fd", args), watcher.stop())).start()
        SignalWatcher(h, signal.SIGUSR1, lambda h, w, signum, args: (print("signal", args), w.stop())).start()
        TimerWatcher(h, 0.05, lambda *_: os.kill(os.getpid(), signal.SIGUSR1)).start()
        print(h.reactor_run(), MessageWatcher(h, 1, print).topic_glob)
        """
    )
    assert lines == ["fd None", "signal None", "0 *"]


def test_a_listing_of_what_there_is_not_is_refused_as_a_wrong_value():
    lines = run(
        """
        for wrong in ({"filters": ["foo"]}, {"user": "nosuch"}):
            try:
                j.JobList(h, **wrong)
            except ValueError as exc:
                print(exc)
        try:
            j.JobspecV1.from_submit(["true"], add_file=["a:rw=/"])
        except ValueError as exc:
            print(exc)
        """
    )
    assert lines == [
        "Invalid filter specified: foo",
        "Invalid user nosuch specified: there is no such user",
        "--add-file: Is a directory: '/'",
    ]


def test_an_answer_that_does_not_come_in_time_is_an_error_of_the_future():
    lines = run(
        """
        def late(future):
            try:
                future.get()
            except OSError as exc:
                print(exc)
        h.rpc("kvs.wait-version", {"namespace": "primary", "rootseq": 99999}).then(late, timeout=0.01)
        print(h.reactor_run())
        """
    )
    assert lines == ["[Errno 110] Connection timed out", "0"]


UNPRIVILEGED = "Request rejected due to insufficient privilege"


def test_the_owner_sends_as_another_user_or_role():
    lines = run(
        """
        from flux.constants import FLUX_MSGTYPE_REQUEST, FLUX_ROLE_USER
        from flux.message import Message
        h.service_register("who").get()
        def served(handle, watcher, msg, args):
            print(msg.userid, msg.rolemask & FLUX_ROLE_USER, msg.topic)
            if msg.topic == "who.last":
                handle.reactor_stop()
        first, last = Message(), Message()
        first.topic, last.topic = "who.first", "who.last"
        first.userid, first.rolemask = 42, FLUX_ROLE_USER
        last.pimpl.set_userid(43)
        last.pimpl.set_rolemask(FLUX_ROLE_USER)
        print(first.userid, first.rolemask == FLUX_ROLE_USER)
        with h.msg_watcher_create(served, FLUX_MSGTYPE_REQUEST, "who.*", rolemask=FLUX_ROLE_USER):
            h.send(first)
            h.send(last)
            h.reactor_run()
        """
    )
    assert lines == ["42 True", "42 2 who.first", "43 2 who.last"]


def test_a_handler_takes_the_roles_that_it_is_told_to_allow_and_refuses_others():
    lines = run(
        """
        import threading
        from flux.constants import FLUX_MSGTYPE_REQUEST, FLUX_ROLE_USER
        from flux.message import Message
        h.service_register("who").get()
        def served(handle, watcher, msg, args):
            if msg.topic == "who.end":
                handle.reactor_stop()
                return
            handle.respond(msg, {"userid": msg.userid})
        def ask(role, topic="who.asks"):
            request = Message()
            request.topic, request.userid, request.rolemask = topic, 42, role
            with flux.Flux() as other:
                other.send(request)
                print(role, other.recv(2).payload_str)
        # Not who.disconnect, which the broker sends for a client that has left.
        watcher = h.msg_watcher_create(served, FLUX_MSGTYPE_REQUEST, "who.[ae]*")
        def all_asks():
            for change in (lambda *_: None, h.msg_handler_allow_rolemask, h.msg_handler_deny_rolemask):
                change(watcher.handle, FLUX_ROLE_USER)
                ask(FLUX_ROLE_USER)
            h.msg_handler_allow_rolemask(watcher.handle, 1 << 20)
            ask(FLUX_ROLE_USER)
            flux.Flux().rpc("who.end")
        asking = threading.Thread(target=all_asks)
        with watcher:
            asking.start()
            h.reactor_run()
        asking.join()
        watcher.destroy()
        print(watcher.handle)
        """
    )
    refused = "2 Request requires owner credentials"
    assert lines == [refused, '2 {"userid": 42}', refused, f"2 {UNPRIVILEGED}", "None"]


def test_an_event_may_carry_text_that_is_not_json():
    lines = run(
        """
        from flux.constants import FLUX_MSGTYPE_EVENT
        h.event_subscribe("talk")
        def heard(handle, watcher, msg, args):
            print(msg.topic, msg.payload_str)
            handle.reactor_stop()
        with h.msg_watcher_create(heard, FLUX_MSGTYPE_EVENT, "talk.*"):
            h.event_send("talk.text", "hello")
            h.reactor_run()
        """
    )
    assert lines == ["talk.text hello"]


def test_a_watch_whose_callback_raised_is_over():
    lines = run(
        """
        from flux import kvs
        def put(value):
            with flux.Flux() as other:
                kvs.put(other, "a", value)
                kvs.commit(other)
        def failing(watch):
            print("called", watch.get())
            raise RuntimeError("bad")
        put(1)
        kvs.kvs_watch_async(h, "a").then(failing)
        try:
            h.reactor_run()
        except RuntimeError as exc:
            print(exc)
        put(2)
        # Its answer comes after the watched key's second value.
        after = h.rpc("kvs.ping", {"seq": 1})
        after.then(lambda call: print("over", call.get()["seq"]))
        h.reactor_run()
        """
    )
    assert lines == ["called 1", "bad", "over 1"]


def test_a_loop_handle_gets_what_it_sends_without_a_broker():
    lines = run(
        """
        from flux.constants import FLUX_MSGTYPE_REQUEST
        for url in ("loop://", b"loop://"):
            loop = flux.Flux(url)
            call = loop.rpc("any.topic")
            msg = loop.recv(FLUX_MSGTYPE_REQUEST)
            print(msg.topic, msg.payload)
            loop.respond(msg, {"n": 1})
            print(call.get())
        def serve(handle, watcher, msg, args):
            handle.respond(msg, {"twice": 2 * msg.payload["n"]})
        with loop.msg_watcher_create(serve, FLUX_MSGTYPE_REQUEST, "my.*"):
            def answered(call):
                print(call.get())
                loop.reactor_stop()
            loop.rpc("my.double", {"n": 4}).then(answered)
            loop.reactor_run()
        for handle in (loop, h):
            try:
                print("no error", handle.rpc("", None))
            except OSError as exc:
                print(exc.strerror)
        """
    )
    answers = ["any.topic None", "{'n': 1}"]
    assert lines == [*answers, *answers, "{'twice': 8}", *["the topic of a request must not be empty"] * 2]


def test_jobs_are_requested_without_waiting_for_them():
    lines = run(
        """
        import flux.job as j
        ids = [j.submit(h, j.JobspecV1.from_command(["true"])) for _ in range(2)]
        for id in ids:
            j.event_wait(h, id, "clean")
        for listing in (j.JobList(h, max_entries="5", ids=None), j.JobList(h, ids=[*ids, 1])):
            future = listing.fetch_jobs()
            future.then(lambda f: (print(len(list(f.get_jobinfos())), getattr(f, "errors", [])), h.reactor_stop()))
            h.reactor_run()
            print(future.is_ready(), len(listing.jobs()), len(future.get_jobs()), listing.errors)
        looked = j.JobKVSLookup(h, [ids[0], "f9"], keys=["jobspec"])
        future = looked.fetch_data()
        print([found["jobspec"]["version"] for found in future.get_decode()], future.errors)
        print(len(looked.data()), looked.errors)
        """
    )
    assert lines == [
        *("2 []", "True 2 2 []", "2 ['JobID 1 unknown']", "True 2 2 ['JobID 1 unknown']"),
        *("[1] ['JobID f9 unknown']", "1 ['JobID f9 unknown']"),
    ]


def test_every_number_of_an_error_is_answered_and_a_request_without_response_is_not():
    lines = run(
        """
        import errno
        from flux.constants import FLUX_MSGTYPE_REQUEST, FLUX_RPC_NORESPONSE
        loop = flux.Flux("loop://")
        for errnum in (0, -errno.EPERM, errno.EPERM):
            call = loop.rpc("bank.add")
            print(loop.respond_error(loop.recv(FLUX_MSGTYPE_REQUEST), errnum, "no such bank"))
            try:
                call.get()
            except OSError as exc:
                print(errno.errorcode[exc.errno], exc.strerror)
        for payload in ('{"a": "ü"}', b'{"a": 1}', {"a": "ü"}, None):
            call = loop.rpc("bank.add")
            loop.respond(loop.recv(FLUX_MSGTYPE_REQUEST), payload)
            print(call.get_str())
        for answer in (loop.respond, lambda request: loop.respond_error(request, errno.EPERM)):
            loop.rpc("bank.add", flags=FLUX_RPC_NORESPONSE)
            answer(loop.recv(FLUX_MSGTYPE_REQUEST))
            try:
                loop.recv()
            except OSError as exc:
                print(exc.errno == errno.EDEADLK)
        """
    )
    errors = ["0", "EINVAL no such bank", "0", "EINVAL no such bank", "0", "EPERM no such bank"]
    assert lines == [*errors, '{"a": "ü"}', '{"a": 1}', '{"a": "ü"}', "None", "True", "True"]
