"""ClusterQueues and LocalQueues, and the order of their pending workloads."""
