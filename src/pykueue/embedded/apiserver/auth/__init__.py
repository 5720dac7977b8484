"""Authentication, impersonation, RBAC, and the server's certificate authority."""
