"""Reports of simulations: one HTML file that needs no network."""
