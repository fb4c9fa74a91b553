"""Databases: SQLite and PostgreSQL in plain SQL, with schemas that are numbered files."""
