"""`flux module` and `flux modprobe`."""
