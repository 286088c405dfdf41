"""L8: results as tables, JSON and CSV. Takes result types, computes nothing."""
