"""`flux queue`: lists and controls queues."""
