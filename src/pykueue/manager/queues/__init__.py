"""Queues, flavors and checks: whether they are active, their status, and the finalizers of what is in use."""
