"""The tree of brokers: links, handshakes, who is there and who is lost."""
