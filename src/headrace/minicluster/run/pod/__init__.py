"""The program in the pods of a MiniCluster, `headrace-pod`, which is process 1 of a container.

Many pods start together on one node, so every 10 ms of imports count.
"""
