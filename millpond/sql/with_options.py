"""Assigns the settings of one WITH (…) to the statement and the sources of its query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millpond.errors import Error, InvalidOption
from millpond.options import Option, Setting, find_option, unknown_option
from millpond.sql.world import World


def share_out(
    world: World, settings: Sequence[Setting], own: Sequence[Option], uris: Mapping[str, str], owner: str
) -> tuple[dict[str, list[Setting]], list[Error]]:
    """Returns the settings of each source by its alias, and what is wrong: a setting goes to whichever of the statement
    (``own``) and its sources declares it.
    """
    errors: list[Error] = []
    declared: dict[str, Sequence[Option]] = {}
    for alias, uri in uris.items():
        try:
            declared[alias] = world.source_options(uri)
        except Error:
            declared[alias] = ()  # reported where the URI is resolved
    shares: dict[str, list[Setting]] = {alias: [] for alias in uris}
    for setting in settings:
        prefix, dot, rest = setting.name.partition(".")
        owner_of = next((a for a in uris if dot and a.lower() == prefix.lower()), None)
        if owner_of is not None and find_option(declared[owner_of], rest):
            shares[owner_of].append(Setting(rest, setting.value, setting.place))
            continue
        takers = [a for a in uris if find_option(declared[a], setting.name)]
        mine = find_option(own, setting.name) is not None
        if len(takers) + mine > 1:
            options = [f"'{a}.{setting.name}'" for a in takers]
            errors.append(
                InvalidOption(
                    f'option "{setting.name}" is declared by more than one input of {owner}',
                    hint=f"name the input: {' or '.join(options)}",
                    place=setting.place,
                )
            )
        elif takers:
            shares[takers[0]].append(setting)
        elif not mine:
            everything = [*own, *(o for options in declared.values() for o in options)]
            errors.append(unknown_option(owner, everything, setting))
    return shares, errors
