"""The cluster queue: pods of a labelled namespace wait in a queue, and start by Flux's rules on a graph of the nodes.

`admission` holds objects when they are created, `cycle` decides (pure), `controller` sees and writes. Workloads are
shown as FluxJobs (`crd`). The README in this folder has a picture of the cycle.
"""
