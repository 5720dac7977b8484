"""The command line, also installed as the kubectl plugin `kubectl-kueue`."""
