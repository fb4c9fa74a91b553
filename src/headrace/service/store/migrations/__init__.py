"""How the database came to have its tables, for Alembic."""
