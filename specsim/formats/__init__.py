"""Readers of foreign files: one module per format, each giving specsim's own types."""
