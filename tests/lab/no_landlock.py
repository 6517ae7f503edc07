"""Imported by the server of a pool, this lets stages run as on a kernel without Landlock."""

from __future__ import annotations

from fedprint.lab.workers import sandbox

sandbox._landlock = lambda readable, writable: False
