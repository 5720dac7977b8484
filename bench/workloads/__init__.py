"""Benchmark of whole workloads: Jobs, JobSets and groups of pods on many simulated nodes."""
