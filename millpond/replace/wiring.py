"""Makes what runs CREATE OR REPLACE of the parts that it uses."""

from __future__ import annotations

import threading

from millpond.alter.alter_table import Alters
from millpond.loading.followers import Followers
from millpond.loading.load import TableLoads
from millpond.loading.loader import Loader
from millpond.loading.open_sources import Sources
from millpond.loading.progress import Load
from millpond.replace.chains import Chains
from millpond.replace.or_replace import Replacements
from millpond.replace.queries import QueryWays
from millpond.replace.shadow import Shadows
from millpond.replace.swap import Swaps
from millpond.statements.declarations import Declarations
from millpond.statements.launch import Launcher
from millpond.statements.lifetime import Lifetime


def make_replacements(
    alters: Alters,
    lock: threading.RLock,
    lifetime: Lifetime,
    declarations: Declarations,
    launcher: Launcher,
    loader: Loader,
    table_loads: TableLoads,
    loads: dict[str, Load],
    followers: Followers,
    sources: Sources,
) -> Replacements:
    """Returns what replaces relations, and builds tables beside others."""
    shadows = Shadows(
        lock=lock,
        lifetime=lifetime,
        catalog=alters.catalog,
        store=alters.store,
        saved=alters.saved,
        declarations=declarations,
        launcher=launcher,
        loader=loader,
        table_loads=table_loads,
        views=alters.views,
        runner=alters.runner,
    )
    swaps = Swaps(
        catalog=alters.catalog,
        store=alters.store,
        saved=alters.saved,
        loads=loads,
        followers=followers,
        views=alters.views,
        runner=alters.runner,
        drift=alters.drift,
        follow=alters.follow,
        publications=alters.publications,
        go_on=alters.go_on,
    )
    chains = Chains(alters, shadows, swaps, QueryWays(alters))
    return Replacements(alters, shadows, swaps, chains, declarations, sources)
