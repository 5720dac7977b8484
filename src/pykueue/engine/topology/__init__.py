"""Topology-aware scheduling: which nodes the pods of a workload go to."""
