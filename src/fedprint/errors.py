"""The error of everything that a user can mend; apart from the nouns, because those import torch."""


class FedprintError(Exception):
    """Bad input or a state that the user can mend; the message is one line that names the value and the remedy.

    ``exit_code`` is what a command ends with.
    """

    exit_code = 2
