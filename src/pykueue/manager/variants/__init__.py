"""Concurrent admission: for each flavor of its ClusterQueue a Workload has a variant that competes for it."""
