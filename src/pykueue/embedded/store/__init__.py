"""Where objects live: a revisioned key-value store, durable or in memory."""
