"""The fields of a MiniCluster file, its rules, and the plan that is made from it. Pure."""
