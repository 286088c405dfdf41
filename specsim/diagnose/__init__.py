"""What a running server's counters or a benchmark's result say about its speculation.

    evidence    what was measured, each figure with its source
    expected    what the same batch should take, priced by the analytic model
    finding     a verdict with its evidence and what to do next
    rules_*     one function per verdict, pure: evidence (and expectation) to a finding or none
    judge       all rules together
    scrape      one GET of /metrics, read-only and bounded
    watching    a sequence of scrapes as windows, over restarts and failures

Nothing here changes a server: the only request ever sent is GET.
"""
