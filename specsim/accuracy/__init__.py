"""Predictions against measurements: errors per set, skipped rows with reasons, residuals."""
