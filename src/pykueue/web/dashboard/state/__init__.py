"""What the dashboard knows of a cluster: an engine and small rows, kept current by watches."""
