"""The mutating webhook for labelled Jobs. Pure.

A new Job is changed into a cluster or rejected. An update of a cluster, such as applying its file again, leaves it a
cluster.

Source: admission.k8s.io/v1; batch/v1 Job.
"""

from __future__ import annotations

import hashlib
from typing import Any

from headrace.k8s.objects.kinds import JOBS
from headrace.k8s.objects.problems import Problem, refusal
from headrace.k8s.runtime.admission.reviews import BadReview, Handler, Review, Verdict
from headrace.minicluster.operator.builders.images import Images

from ..read.cluster import LABEL_KEY, LABEL_VALUE
from ..read.field import Field, InvalidForeign
from . import names
from .policy import flux_job, id_of
from .updates import updated

Object = dict[str, Any]

# Labels that JobSet's controller sets on its Jobs, whose names are the same in each attempt. 0.12 sets the second
# label.
_ATTEMPTS = ("jobset.sigs.k8s.io/restart-attempt", "jobset.sigs.k8s.io/job-restart-attempt")
_JOBSET = "jobset.x-k8s.io"
_EXISTS = Problem(
    f"metadata.labels.{LABEL_KEY}",
    "cannot be added to an existing Job, because its pods cannot be changed: create the Job with the label",
)
_STAYS = Problem(
    f"metadata.labels.{LABEL_KEY}",
    "is kept, because the pods of a cluster cannot be changed: delete the Job, and create it without the label",
)


def handler(images: Images) -> Handler:
    """The handler for reviews of Jobs; `images` are the images of the pods."""
    return Handler(lambda review: judge(review, images))


def judge(review: Review, images: Images) -> Verdict:
    """The verdict on a review of a Job. Raises BadReview."""
    if review.resource != JOBS.plural or review.subresource:
        about = f"{review.resource}/{review.subresource}"
        raise BadReview(f"asked about {about}: the webhook is for {JOBS.plural}")
    if review.old is not None and id_of(review.old):
        return _judge_update(review, review.old)
    if not _is_labelled(review.new):
        return Verdict()
    if review.old is not None:
        is_new = not _is_labelled(review.old)
        return Verdict(refusal=_refusal(review, [_EXISTS])) if is_new else Verdict()
    try:
        return Verdict(changed=flux_job(review.new, images, cluster_id(review)))
    except InvalidForeign as exc:
        return Verdict(refusal=_refusal(review, exc.problems))


def _judge_update(review: Review, cluster: Object) -> Verdict:
    """The verdict on an update of a Job that is a cluster."""
    is_taken = _is_labelled(cluster) and not _is_labelled(review.new)
    try:
        changed = updated(review.new, cluster)
    except InvalidForeign as exc:
        return Verdict(refusal=_refusal(review, exc.problems))
    return Verdict(changed=changed, warnings=(str(_STAYS),) if is_taken else ())


def cluster_id(review: Review) -> str:
    """The ID of the cluster that a review's Job becomes.

    It is the same for each attempt of JobSet's controller to create the Job. For other Jobs it is derived from the
    review's uid, which is random.
    """
    metadata = Field(review.new)["metadata"]
    owners = [one["uid"].text() for one in metadata["ownerReferences"].items() if _is_jobset(one)]
    attempts = [metadata["labels"][label].text() for label in _ATTEMPTS]
    source = [review.uid] if not owners else [owners[0], metadata["name"].text(), *attempts]
    return hashlib.sha256("\n".join(source).encode()).hexdigest()[: names.ID_LENGTH]


def _is_jobset(owner: Field) -> bool:
    return owner["apiVersion"].text().partition("/")[0] == _JOBSET and owner["controller"].flag()


def _is_labelled(job: Object) -> bool:
    return Field(job)["metadata"]["labels"].mapping().get(LABEL_KEY) == LABEL_VALUE


def _refusal(review: Review, problems: list[Problem]) -> Object:
    return refusal(JOBS, review.name, problems)
