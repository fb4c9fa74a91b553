"""Jobs, JobSets and TrainJobs of Kubernetes as Flux clusters: how they are read, and what the operator does."""
