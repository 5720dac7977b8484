"""A manager that starts on a cluster full of waiting Workloads: how long it takes, and how large it grows."""
