"""Masks the secrets of an app: values from the environment are never shown."""

from __future__ import annotations

from millpond.errors import Error, without_passwords
from millpond.sql.text import Script


class Secrets:
    """Removes values of the environment, and passwords, from texts."""

    def __init__(self) -> None:
        self._scripts: list[Script] = []

    def remember(self, script: Script) -> None:
        """Records the values that a text has from the environment."""
        if script.secrets:
            self._scripts.append(script)

    def mask(self, text: str) -> str:
        """Returns the text without values that came from the environment, and without passwords."""
        for script in self._scripts:
            text = script.mask(text)
        return without_passwords(text)

    def mask_error(self, error: Error) -> None:
        """Masks the message of an error, and the errors that it contains."""
        error.message = self.mask(error.message)
        error.hint = self.mask(error.hint) if error.hint else None
        error.args = (error.message,)
        for inner in getattr(error, "errors", ()):
            self.mask_error(inner)
