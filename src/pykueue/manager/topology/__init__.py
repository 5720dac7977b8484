"""The controllers of topology-aware scheduling: pods go to their domains, and failed nodes are replaced."""
