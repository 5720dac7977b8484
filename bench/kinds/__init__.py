"""Job kinds: what a job of several pod sets costs the manager, compared with a batch Job."""
