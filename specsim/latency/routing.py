"""How alike the expert choices of neighbouring tokens are, one number for all routed models.

Independent uniform routing is an upper bound for the experts that a verify step touches:
consecutive tokens of one sequence route alike. EXPERT_OVERLAP is the share of a token's experts
that it has in common with its neighbours (0: independent, 1: identical).
"""

# Set by validation/fit_engines.py on the fitted rows of the ledger.
EXPERT_OVERLAP = 0.3
