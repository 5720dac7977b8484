"""Pictures as inline SVG, made on the server. Colours come from classes; texts are escaped."""
