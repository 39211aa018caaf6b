"""Makes what runs CREATE OR REPLACE of the parts that it uses."""

from __future__ import annotations

import threading

from millpond.app.alters import Alters
from millpond.app.chains import Chains
from millpond.app.declarations import Declarations
from millpond.app.launch import Launcher
from millpond.app.lifetime import Lifetime
from millpond.app.replace import Replacements
from millpond.app.replaced_queries import QueryWays
from millpond.app.shadow import Shadows
from millpond.app.swap import Swaps
from millpond.loading.followers import Followers
from millpond.loading.load import TableLoads
from millpond.loading.loader import Loader
from millpond.loading.open_sources import Sources
from millpond.loading.progress import Load


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
        tables=alters.tables,
        publications=alters.publications,
        go_on=alters.go_on,
    )
    chains = Chains(alters, shadows, swaps, QueryWays(alters))
    return Replacements(alters, shadows, swaps, chains, declarations, sources)
