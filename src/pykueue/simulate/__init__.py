"""Virtual-time runs of the same engine and controllers."""
