"""Talking to any Kubernetes API: requests, transports, watch caches, work queues, leases, events, certificates."""
