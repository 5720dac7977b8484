"""Clients of any Kubernetes API: transports, informers, work queues, leases, events, certificates."""
