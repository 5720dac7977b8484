"""The search for workloads to preempt."""
