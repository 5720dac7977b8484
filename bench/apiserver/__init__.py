"""How fast the embedded API server is: server and load in processes of their own, over TLS, durable."""
