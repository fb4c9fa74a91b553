"""Jobs, JobSets and TrainJobs of Kubernetes, read as clusters of Flux. Pure: no Kubernetes and no engine.

A TrainJob with its runtime is a JobSet, a JobSet makes Jobs, and a Job is a cluster: each reader makes the document of
the next one, and `job` makes the `ForeignCluster`, which every way of running it is built from.
"""
