"""What the package shows is one screen, and exactly this."""

from __future__ import annotations

import inspect

import millpond


def test_the_public_names() -> None:
    assert sorted(millpond.__all__) == ["App", "Error", "Result", "Table", "__version__"]
    for name in millpond.__all__:
        assert getattr(millpond, name) is not None


def test_every_error_has_a_code_of_its_own() -> None:
    from millpond import errors

    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, millpond.Error)]
    codes = [c.code for c in classes]
    assert len(set(codes)) == len(codes) >= 20
    error = millpond.Error("message", hint="do this")
    assert (error.code, error.hint, error.line, error.column) == ("error", "do this", None, None)
