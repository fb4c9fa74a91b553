"""The service's own database: users who have no other one, and their tokens. It has nothing about jobs."""
