"""Jobs, JobSets and TrainJobs of Kubernetes as Flux clusters: their readers, operator and client."""
