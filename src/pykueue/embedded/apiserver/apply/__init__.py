"""Server-side apply, strategic merge patches, and managed fields."""
