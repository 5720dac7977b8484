"""One module per job kind: how it becomes a Workload, how it is started and stopped."""
