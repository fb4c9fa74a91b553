"""PMIx for the tasks of a job, as Open MPI and others ask for it: a server on each node, in a process of its own.

The shell (`offer`) tells tasks where the server is. `server` runs libpmix (`library`, found by `locate`); it starts
when the first task connects (`port`), and `relay` passes connections on to it. `collect` gathers operations between
nodes.
"""
