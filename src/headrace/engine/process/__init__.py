"""Parts that start, feed and inspect processes, on Linux."""
