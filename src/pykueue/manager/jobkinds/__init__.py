"""Kinds of jobs that JobKinds describe, while the manager runs."""
