"""Jobs of others on Kubernetes as clusters of Flux: what admission makes of a labelled Job, and what the operator adds.

A mutating webhook makes a Job a cluster when it is created (`policy`), as a pure function of the Job. The operator
makes the Secret with keys and plan, which the pods wait for, once the Job exists.
"""
