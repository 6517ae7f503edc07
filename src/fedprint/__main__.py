"""``python -m fedprint``."""

from fedprint.pipeline.cli import main

main()
