"""What a model is: shapes, weight formats, exact counts and the catalogue."""
