"""Metrics in Prometheus' text format."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from headrace.formats.exposition.histogram import Histogram
from headrace.formats.exposition.metrics import Metrics


def test_the_text_is_what_prometheus_reads() -> None:
    metrics = Metrics()
    metrics.counter("plain_total", "A count.")
    metrics.counter("requests_total", "Requests.", ("verb", "resource"))
    metrics.gauge("phases", "By phase.", lambda: {("Running",): 2, ('a"b\\c\n',): 1}, ("phase",))
    metrics.count("requests_total", "get", "jobs")
    metrics.count("requests_total", "get", "jobs")
    assert metrics.total("requests_total") == 2
    assert metrics.text() == (
        "# HELP plain_total A count.\n# TYPE plain_total counter\nplain_total 0\n"
        "# HELP requests_total Requests.\n# TYPE requests_total counter\n"
        'requests_total{verb="get",resource="jobs"} 2\n'
        "# HELP phases By phase.\n# TYPE phases gauge\n"
        'phases{phase="Running"} 2\nphases{phase="a\\"b\\\\c\\n"} 1\n'
    )


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    metrics = Metrics()
    metrics.histogram("seconds", "Time.")
    for seconds in (0.0005, 0.05, 60.0):
        metrics.observe("seconds", seconds)
    lines = metrics.text().splitlines()[2:]
    assert lines[0] == 'seconds_bucket{le="0.001"} 1'
    assert lines[3] == 'seconds_bucket{le="0.1"} 2'
    assert lines[-3:] == ['seconds_bucket{le="+Inf"} 3', "seconds_count 3", "seconds_sum 60.050500"]


def test_a_histogram_is_kept_for_each_label() -> None:
    metrics = Metrics()
    metrics.histogram("seconds", "Time.", ("controller",))
    metrics.counter("errors_total", "Errors.", ("controller",))
    assert metrics.text().count("\n") == 4, "nothing has been counted"
    metrics.observe("seconds", 0.5, "jobs")
    metrics.count("errors_total", "jobs", add=0)
    lines = metrics.text().splitlines()
    assert 'seconds_bucket{controller="jobs",le="0.1"} 0' in lines
    assert 'seconds_bucket{controller="jobs",le="0.5"} 1' in lines
    assert 'seconds_count{controller="jobs"} 1' in lines and 'seconds_sum{controller="jobs"} 0.500000' in lines
    assert 'errors_total{controller="jobs"} 0' in lines


def test_debians_promtool_finds_nothing_wrong() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (make packages)")
    kept = Histogram((1.0, 60.0))
    kept.observe(3.0)
    metrics = Metrics()
    metrics.counter("work_total", "Work.", ("kind",))
    metrics.count("work_total", 'a "quoted"\nline')
    metrics.total_of("others_total", "Work of others.", lambda: {(): 12_345_678})
    metrics.gauge("things", "Things.", lambda: {("a",): 1, ("b",): 0.5}, ("name",))
    metrics.histogram("work_seconds", "Time of work.")
    metrics.histogram_of("wait_seconds", "Time of waiting.", lambda: {("x",): kept}, ("queue",))
    done = subprocess.run(
        [promtool, "check", "metrics"], input=metrics.text(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "others_total 12345678\n" in metrics.text()
