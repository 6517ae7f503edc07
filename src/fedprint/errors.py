"""The error for everything that a user can correct. It is not in types.py, because that imports torch."""


class FedprintError(Exception):
    """Bad input or a state that the user can correct; the message is one line that names the value and the remedy.

    ``exit_code`` is the exit status of the command.
    """

    exit_code = 2
