"""What is run: a folder for each kind of experiment, and what all kinds share."""

PRELOADED = ("fedprint.kinds.preload",)
"""What the processes that stages run in have imported."""
