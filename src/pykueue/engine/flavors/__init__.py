"""What workloads request, and which flavors they are assigned."""
