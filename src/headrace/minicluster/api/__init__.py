"""A MiniCluster file as fields, its rules, and the plan that is made of it. Pure."""
