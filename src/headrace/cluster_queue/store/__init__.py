"""What was: jobs, their events and what they used, in SQLite or PostgreSQL. What lives is in the API server alone."""
