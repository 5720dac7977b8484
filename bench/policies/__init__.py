"""What policies of this project change, on the GPU jobs of a public trace."""
