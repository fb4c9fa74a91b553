"""The controller runtime: what any Kubernetes controller needs, independent of our kinds.

`controller.Controller(shared, kind, owns, reconcile)` keeps the objects of one kind as `reconcile` decides.
`program.serve` runs several controllers as one process, with shared caches, one Lease, one admission webhook, metrics
and health checks.
"""
