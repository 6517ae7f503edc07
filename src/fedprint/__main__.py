"""``python -m fedprint``."""

from fedprint.cli.main import main

main()
