"""Queue policies: which pending job starts next, which pending jobs have reservations, and why the others wait.

Like the graph, this is a library without I/O: time is an argument, in whole seconds, and decisions are returned.
Nothing is imported here: a program that needs one file, such as `forecast`, does not load the graph.
"""
