"""The Job controller: pods for Jobs, counted exactly once.

Source: reference/cluster-workloads.md, section 1.
"""
