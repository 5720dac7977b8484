"""The Job controller: pods for Jobs, counted exactly once.

Source: docs/reference/cluster-workloads.md, section 1.
"""
