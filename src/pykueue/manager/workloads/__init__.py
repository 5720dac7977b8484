"""The life of a Workload as pure functions: reading its state, and what each step of its life writes."""
