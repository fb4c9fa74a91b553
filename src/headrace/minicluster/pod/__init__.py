"""What runs in the pods of a MiniCluster: one program, `headrace-pod`, started by the container.

It is process 1 there. Every 10 ms that it imports are felt in each of many pods that start together on one node.
"""
