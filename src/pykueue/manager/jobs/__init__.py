"""Job controllers: one for all kinds of jobs."""
