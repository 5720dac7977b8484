"""CEL (Common Expression Language) with the functions and cost limits of Kubernetes."""
