"""Names fields and collections so that MongoDB takes every name: what it does not take is ``%`` and two hexadecimal
digits, as in URLs.
"""

from __future__ import annotations

import hashlib

from millpond.errors import InvalidOption

OWN = "millpond_"
"""What the names of the collections begin with that Millpond keeps for itself."""
_LONGEST = 120
"""Bytes of the name of a collection."""


def field_name(name: str) -> str:
    """Returns the field of a column, of a part of a STRUCT or of a key of a MAP."""
    if not name:
        return "%"
    text = name.replace("%", "%25").replace(".", "%2E").replace("\0", "%00")
    if text.startswith("$"):
        text = "%24" + text[1:]
    return "%5Fid" if text == "_id" else text


def name_of(field: str) -> str:
    """Returns the name whose field it is."""
    if "%" not in field:
        return field
    if field == "%":
        return ""
    parts = field.split("%")
    return parts[0] + "".join(chr(int(part[:2], 16)) + part[2:] for part in parts[1:])


def collection_name(table: str) -> str:
    """Returns the collection of a table that names none."""
    text = table.replace("%", "%25").replace("$", "%24").replace("\0", "%00")
    if text.startswith(("system.", OWN)):
        text = f"%{ord(text[0]):02X}{text[1:]}"
    if not text or len(text.encode()) > _LONGEST:
        digest = hashlib.sha256(table.encode()).hexdigest()[:16]
        text = f"{text.encode()[: _LONGEST - 17].decode(errors='ignore')}~{digest}"
    return text


def check_collection(name: str, what: str) -> str:
    """Returns the name of a collection that somebody has given. Raises InvalidOption."""
    if "$" in name or "\0" in name or name.startswith(("system.", OWN)) or name.endswith("."):
        raise InvalidOption(
            f'{what}: "{name}" is no name of a collection that it can have',
            hint=f"no $, and neither system. nor {OWN} at its beginning",
        )
    if len(name.encode()) > _LONGEST:
        raise InvalidOption(f'{what}: "{name}" is longer than {_LONGEST} bytes', hint="give it a shorter one")
    return name
