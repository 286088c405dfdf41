"""How served traffic chooses experts: two numbers for all routed models.

Independent uniform choice is an upper bound for the experts that a step touches. Consecutive
tokens of a sequence choose alike, and the requests of one workload favour the same experts.
Both numbers are set by validation/scripts/fit_engines.py on the fitted rows that
validation/reports/ledger.json lists.
"""

from specsim.ops.work import Routing

SERVING = Routing(overlap=0.374, shape=0.365)
