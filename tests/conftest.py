"""What holds for all tests."""

import signal

# A shell starts background jobs with Ctrl-C ignored, and children inherit that: the tests that
# interrupt a run would then wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
