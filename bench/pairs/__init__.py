"""Two clones compared in interleaved pairs."""
