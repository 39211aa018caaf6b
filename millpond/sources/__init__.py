"""Where rows come from: one file per kind of source, found by the scheme of a URI."""
