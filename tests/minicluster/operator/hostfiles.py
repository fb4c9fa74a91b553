"""A kind on the runtime, as small as one can be: each Job with a label has a ConfigMap with the names of its hosts.

Its webhook makes such a Job an Indexed one, whose hosts have names, and refuses one with too many of them.
"""

from __future__ import annotations

from headrace.k8s.objects.kinds import CONFIG_MAPS, JOBS
from headrace.k8s.runtime.admission.reviews import Handler, Review, Verdict
from headrace.k8s.runtime.controller import Controller, Shared
from headrace.k8s.runtime.events import Report
from headrace.k8s.runtime.steps import Observed, Outcome
from headrace.k8s.runtime.watches import Selection

LABEL = "example.org/hostfile"
MOST_HOSTS = 1000


def reconcile(observed: Observed, now: float) -> Outcome:
    job = observed.item
    name, size = job["metadata"]["name"], job["spec"]["parallelism"]
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-hosts", "labels": {LABEL: ""}},
        "data": {"hostfile": "".join(f"{name}-{index}\n" for index in range(size))},
    }
    is_new = not observed.owned["ConfigMap"]
    events = (Report("Normal", "HostfileMade", f"{size} hosts"),) if is_new else ()
    return Outcome(objects=(body,), events=events)


def judge(review: Review) -> Verdict:
    spec = review.new["spec"]
    hosts = spec.get("parallelism", 1)
    if hosts > MOST_HOSTS:
        message = f"spec.parallelism: must not be above {MOST_HOSTS}"
        return Verdict(refusal={"code": 422, "reason": "Invalid", "message": message})
    indexed = {"completionMode": "Indexed", "completions": hosts}
    return Verdict(changed={**review.new, "spec": {**spec, **indexed}})


def build(shared: Shared) -> dict[str, Handler]:
    Controller(shared, Selection(JOBS, LABEL), owns=(Selection(CONFIG_MAPS, LABEL),), reconcile=reconcile)
    return {"/mutate-jobs": Handler(judge)}
