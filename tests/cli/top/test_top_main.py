"""Answers that come to `flux top`, in any order."""

from __future__ import annotations

import errno
from types import SimpleNamespace

from headrace.cli.top.main import _Watched
from headrace.wire.client.reactor import Reactor


class _Call:
    """A call whose answers are given by the test; an answer that is an error is raised."""

    def __init__(self, answer=None):
        self.answer, self.callback = answer, None

    def then(self, callback):
        self.callback = callback

    def get(self):
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer

    def answered(self, answer):
        self.answer = answer
        self.callback(self)


class _Handle:
    """Keeps the calls by topic, and answers those that are waited for."""

    def __init__(self):
        self.calls = {}

    def attr_get(self, name):
        if name in ("jobid", "broker.starttime"):
            raise OSError(errno.ENOENT, name)
        return "0"

    def rpc(self, topic, payload=None, nodeid=None):
        self.calls.setdefault(topic, []).append(_Call({} if topic == "config.get" else OSError(errno.ENOENT, topic)))
        return self.calls[topic][-1]

    def stream(self, topic, payload):
        self.calls.setdefault(topic, []).append(_Call())
        return self.calls[topic][-1]

    def subscribe(self, topic):
        pass


def test_listings_of_jobs_that_overlap_show_each_job_once():
    handle, reactor = _Handle(), Reactor()
    top = SimpleNamespace(reactor=reactor, changed=lambda _watched: reactor.stop())
    watched = _Watched(top, handle, "", "")
    # The first numbers of jobs have them listed again, before the first listing was answered.
    (numbers,) = handle.calls["job-list.job-stats"]
    numbers.answered({})
    reactor.add_timer(0.0, reactor.stop)
    reactor.run()
    end = OSError(errno.ENODATA, "no more")
    listings = handle.calls["job-list.list"]
    assert len(listings) == 2
    for listing in listings:
        listing.answered({"jobs": [{"id": 1, "t_run": 1.0, "state": 16}]})
    for listing in listings:
        listing.answered(end)
        assert len(watched.view.jobs) == 1


def test_an_instance_that_is_gone_when_jobs_are_listed_again_is_lost():
    handle, reactor, lost = _Handle(), Reactor(), []

    def gone(topic, payload):
        raise OSError(errno.ECONNRESET, topic)

    def left(one, exc):
        lost.append((one, exc.errno))
        reactor.stop()

    watched = _Watched(SimpleNamespace(reactor=reactor, changed=lambda _watched: None, lost=left), handle, "", "")
    handle.stream = gone
    handle.calls["job-list.job-stats"][0].answered({})
    reactor.run()
    assert lost == [(watched, errno.ECONNRESET)]
