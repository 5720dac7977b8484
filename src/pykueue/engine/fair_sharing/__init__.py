"""Fair sharing between nodes of a tree, and admission fair sharing between LocalQueues."""
