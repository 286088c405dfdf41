"""From measurements to profiles: records, fits and what the data can and cannot identify."""
