"""Parts shared by job services: the record of a job, its packed form, and the policy of queues."""
