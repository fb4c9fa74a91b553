"""Jobs from submission to their end: the pure core, its journal, and the services around them."""
