"""The embedded cluster: an ordinary Kubernetes cluster that knows nothing of queues."""
