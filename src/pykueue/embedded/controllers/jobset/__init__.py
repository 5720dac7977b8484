"""The JobSet controller: Jobs that start, succeed, fail and restart together.

Source: docs/reference/cluster-workloads.md, section 2.
"""
