"""Controllers of pods: single pods, pod groups and StatefulSets."""
