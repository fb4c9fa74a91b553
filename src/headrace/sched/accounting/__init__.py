"""Accounting without a clock or a database: rows, listings, fair share, usage, and the policy of priorities."""
