"""What an instance is going through, and what it keeps on disk."""
