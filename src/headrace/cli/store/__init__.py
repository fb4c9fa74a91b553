"""Commands that keep and move what an instance has stored."""
