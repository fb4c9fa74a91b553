"""PMIx for the tasks of a job, as Open MPI and others ask for it: a server on each node, in a process of its own.

The shell (`offer`) sets the environment by which tasks find the server. `server` runs libpmix (`library`, found by
`locate`); it starts when the first task connects (`port`), and `relay` passes connections on to it. `collect` combines
the collective operations of several nodes.
"""
