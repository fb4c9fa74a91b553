"""`flux top`: shows the jobs and resources of an instance on a screen that is updated continuously."""
