"""The cluster autoscaler of the embedded cluster."""
