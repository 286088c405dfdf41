"""Foreign formats, one translator per file."""
