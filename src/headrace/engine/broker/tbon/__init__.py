"""The tree of brokers (TBON): links, handshakes, membership and loss."""
