"""Queues: their switches, what a restart remembers, and a configuration that changes."""

from __future__ import annotations

import pytest

from headrace.engine.modules.job_manager.queues import QueueError, Queues


def test_the_anonymous_queue_is_open_and_started() -> None:
    queues = Queues([])
    assert (queues.names, queues.status(None)) == ([], {"enable": True, "start": True})
    queues.set_enabled(queues.select(None, False), False, "closed", True)
    assert queues.status("") == {"enable": False, "start": True, "disable_reason": "closed"}
    assert queues.refusal("") == "job submission is disabled: closed"


def test_named_queues_have_to_be_named() -> None:
    queues = Queues(["a", "b"])
    assert queues.select(None, True) == ["a", "b"]
    for name in (None, "c"):
        with pytest.raises(QueueError):
            queues.select(name, False)
        with pytest.raises(QueueError):
            queues.status(name)


def test_switches_are_saved_but_not_those_that_are_for_now() -> None:
    queues = Queues(["a", "b"])
    queues.set_started(["a", "b"], True, None, True)
    queues.set_started(["b"], False, "for now", False)
    queues.set_enabled(["a"], False, "full", True)
    again = Queues(["b", "a", "c"])
    again.restore(queues.save())
    assert again.status("a") == {"enable": False, "start": True, "disable_reason": "full"}
    assert again.status("b") == {"enable": True, "start": True}
    assert again.status("c") == {"enable": True, "start": False}


def test_a_new_configuration_keeps_the_switches_of_queues_that_stay() -> None:
    queues = Queues(["a", "b"])
    queues.set_started(["a"], True, None, True)
    assert queues.configure(["a", "c"]) == ["b"]
    assert [queues.started(name) for name in ("a", "b", "c")] == [True, False, False]
