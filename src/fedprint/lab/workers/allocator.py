"""Memory that a training step frees stays with the process: the next step asks for as much again. Or it goes back."""

from __future__ import annotations

import ctypes

KEPT = 1 << 30
"""Bytes below which an allocation comes from the heap, and free bytes that the heap may hold at its end."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""


def keep_freed_memory() -> bool:
    """Make glibc's allocator keep large freed blocks; return whether it does (other systems do not).

    The logits of a language model are some 10 MB, which glibc maps, and the kernel fills with zeros, anew at every
    step: a tenth to a fifth of the processor time of such a federation (58 + 16 ms of user and system time an update
    without this, 54 + 1 with it).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT) and mallopt(_MMAP_THRESHOLD, KEPT))


def return_freed_memory() -> bool:
    """Return what glibc's allocator holds free to the system; return whether it did (other systems do not)."""
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):
        return False
