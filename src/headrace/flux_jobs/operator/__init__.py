"""Turns Jobs on Kubernetes into clusters of Flux.

When a labelled Job is created, a mutating webhook changes it into a cluster (`policy`), as a pure function of the Job.
Once the Job exists, the operator creates the Secret with keys and plan, for which the pods wait.
"""
