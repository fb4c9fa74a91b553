"""The controller runtime: parts that any Kubernetes operator needs, without knowledge of MiniClusters.

A reflector lists and watches one kind of objects into a cache; a work queue has the keys to reconcile, each once; a
Lease elects one of several operators as leader.
"""
