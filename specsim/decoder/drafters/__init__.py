"""Drafters: how the next k tokens are guessed. See `base` for the one interface they share.

    draft_model   a smaller model of the same vocabulary, or the target's own first layers
    eagle         one layer over the target's hidden states (EAGLE / MTP)
    lookup        the continuation of the last tokens' earlier occurrence (prompt lookup), and the
                  longest-suffix match in this request and in earlier answers
"""
