"""The embedded cluster: an ordinary Kubernetes cluster without any code for queues."""
