"""What the manager knows of nodes, of the pods on them, and of which nodes Workloads are assigned to."""
