"""What commands, bindings and services share of listing and submitting jobs, without a command line or a terminal."""
