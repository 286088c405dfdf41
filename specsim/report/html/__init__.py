"""Results as one HTML file: interactive, self-contained, readable offline, on a phone, on paper."""
