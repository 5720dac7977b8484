"""Quota and its usage in trees of cohorts, and what a workload has reserved of it."""
