"""An elastic job that changes its size all the time, among many other jobs."""
