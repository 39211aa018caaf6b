"""Maps tokens to roles, and checks what a role may do."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence

from millpond.http.failures import Refused
from millpond.http.settings import Role
from millpond.sql import statements as st
from millpond.sql.checked import Checked, CheckedExplain

CHANGES = (*st.WRITES, st.Begin, st.Commit, st.Rollback)


def role_of(tokens: Mapping[str, Role], authorization: str | None) -> Role:
    """Returns the role of the sender of that header. Every token is compared, each in constant time, so that the time
    it takes reveals nothing. Raises Refused for an unknown token.
    """
    if not tokens:
        return Role.ADMIN
    if authorization is None:
        return Role.NONE
    scheme, _, given = authorization.partition(" ")
    found = Role.NONE
    offered = given.strip().encode("latin-1", "replace")
    for token, role in tokens.items():
        if hmac.compare_digest(token.encode(), offered):
            found = max(found, role)
    if scheme.lower() != "bearer" or found is Role.NONE:
        raise Refused(
            401, "unauthorized", "the token is not known", hint="send the header Authorization: Bearer TOKEN"
        )
    return found


def require(role: Role, needed: Role, what: str) -> None:
    """Raises Refused if the role is not enough."""
    if role >= needed:
        return
    if role is Role.NONE:
        raise Refused(401, "unauthorized", f"{what} needs a token", hint="send Authorization: Bearer TOKEN")
    raise Refused(
        403,
        "forbidden",
        f"{what} needs the role {needed.name.lower()}, and this token has the role {role.name.lower()}",
        hint=f"use the token of MILLPOND_TOKEN_{needed.name}",
    )


def check_kinds(role: Role, statements: Sequence[st.Statement]) -> None:
    """Raises Refused for a statement that the role may not run."""
    for statement in statements:
        if isinstance(statement, st.Explain) and statement.analyze:
            statement = statement.statement  # it is run
        name = words(statement)
        if not st.only_reads(statement):
            require(role, Role.WRITE if isinstance(statement, CHANGES) else Role.ADMIN, name)


def check_running(role: Role, checked: Checked) -> None:
    """Raises Refused for a statement that would continue after the response, if the role may not start one."""
    if checked.runs and not isinstance(checked, CheckedExplain):
        require(role, Role.ADMIN, f"a running {words(checked.statement)}")


def words(statement: st.Statement) -> str:
    """Returns the statement's kind in SQL words: CREATE TABLE."""
    name = type(statement).__name__
    return "".join(f" {c}" if c.isupper() and at else c for at, c in enumerate(name)).upper()
