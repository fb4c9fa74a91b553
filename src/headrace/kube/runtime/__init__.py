"""The controller runtime: what any Kubernetes operator needs, and nothing about MiniClusters.

A reflector lists and watches one kind of objects into a cache; a work queue holds the keys that want a look, each once;
a Lease elects the one of several operators that acts.
"""
