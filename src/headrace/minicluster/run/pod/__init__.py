"""The program in the pods of a MiniCluster: `headrace-pod`, process 1 of a container.

Many pods may start on one node at the same time, so every 10 ms of imports matter.
"""
