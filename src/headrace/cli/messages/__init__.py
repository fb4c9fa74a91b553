"""Commands that send and receive single messages."""
