"""What a running server's counters or a benchmark's result say about its speculation.

Nothing here changes a server: the only request ever sent is GET.
"""
