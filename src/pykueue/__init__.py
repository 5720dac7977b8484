"""Job queueing for Kubernetes that speaks Kueue's API."""
