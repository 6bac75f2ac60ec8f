"""Detection of writes to dictionaries by the interpreter's version counter, read from memory or through torch."""

import pytest

from autocompile.runtime import dictionaries
from autocompile.runtime.dictionaries import Written


@pytest.mark.parametrize("in_memory", [True, False])
def test_every_write_is_seen_and_nothing_else(monkeypatch, in_memory):
    if in_memory and dictionaries._position() is None:
        pytest.skip("this interpreter keeps its count elsewhere")
    if not in_memory:
        monkeypatch.setattr(dictionaries, "_position", lambda: None)
    many = [{"a": i} for i in range(100)]
    written = Written(many)
    assert not written.is_newer()
    assert [one["a"] for one in many] == list(range(100))
    assert not written.is_newer()
    for write in (lambda one: one.update(a=7), lambda one: one.update(b=1), lambda one: one.pop("b")):
        written = Written(many)
        write(many[50])
        assert written.is_newer()
    assert not Written([]).is_newer()
