"""Reads Jobs, JobSets and TrainJobs of Kubernetes as clusters of Flux. Pure.

This package needs neither Kubernetes nor the engine. A TrainJob with its runtime becomes a JobSet, a JobSet makes Jobs,
and a Job is a cluster. Each reader makes the document of the next, and `job` makes the `ForeignCluster`, from which
every way of running it is built.
"""
