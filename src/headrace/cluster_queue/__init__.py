"""The cluster queue: pods of labelled namespaces wait in queues and start by Flux's rules.

The queues schedule on graphs of the cluster's nodes. `admission` holds objects when they are created, `cycle` decides
(pure), and `controller` observes the cluster and writes. Workloads are shown as FluxJobs (`crd`). The README in this
folder has a picture of the cycle.
"""
