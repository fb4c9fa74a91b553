"""The controller runtime: what any Kubernetes controller needs, without knowledge of a kind of ours.

`controller.Controller(shared, kind, owns, reconcile)` keeps the objects of one kind as `reconcile` says;
`program.serve` runs several of them as one process, with shared caches, one Lease, one admission webhook, metrics and
health.
"""
