"""`flux top`: the jobs and resources of an instance on a screen that is kept up to date."""
