"""The service that checks and accepts submitted jobs."""
