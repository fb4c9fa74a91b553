"""What a job is to the services that know jobs: its record, how records are packed, and the policy of queues."""
