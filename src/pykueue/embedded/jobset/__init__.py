"""JobSet, a kind of the embedded cluster: its definition and its admission rules.

What carries JobSets out is `embedded.controllers.jobset`. Source: docs/reference/cluster-workloads.md,
section 2.
"""
