"""The history: jobs, their events and their use, in SQLite or PostgreSQL.

Current state is only in the API server.
"""
