"""Descriptions of the compiler's reasons to recompile; the messages are those of torch 2.13. No torch."""

import pytest

from autocompile.runtime.explanations import RECOMPILES, in_words
from autocompile.runtime.recompiled import explained, legible, reasons_in

STATE, ARGUMENT, SIZE = "state changes", "argument changes", "size changes"
HINT = "(HINT: torch.compile considers integer attributes of the nn.Module to be static. If you are observing"


def counted(count, source="self.calls"):
    where = f'\nUser stack trace:\n  File "/home/me/net.py", line 9, in forward\n    {source} += 1'
    return [
        f"0/{n}: {source} == {n}              # {source} += 1  # me/net.py:9 in forward {HINT}{where}" for n in count
    ]


def test_an_attribute_that_changes_with_every_call_is_named():
    found = explained(counted(range(8)), "Hard failure due to fail_on_recompile_limit_hit")
    assert found.message == (
        "`self.calls` changes with every call, and each change causes a recompilation (net.py:9 in forward); "
        "make it a tensor (register_buffer), or do not change it in forward"
    )
    assert found.cause == "state changes"


def test_reasons_are_read_off_the_message_where_compiling_again_is_forbidden():
    listed = "\n".join(f"    - {line}" for reason in counted((1, 0)) for line in reason.splitlines())
    message = (
        "Detected recompile when torch.compile stance is 'fail_on_recompile'. filename: '/home/me/net.py', "
        f"function name: 'forward', line number: 8\n    triggered by the following guard failure(s):\n{listed}"
    )
    assert len(reasons_in(message)) == 2
    assert explained(reasons_in(message), message).message.startswith("`self.calls` changes with every call")
    first_line = message.splitlines()[0]
    assert reasons_in(first_line) == []
    assert explained([], first_line).message == (
        "forward in net.py was compiled during the timing, so calls run different code"
    )


def test_what_differs_most_often_is_told():
    reasons = ["0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3", *counted((0, 1, 2))]
    assert explained(reasons, "").message.startswith("`self.calls`")


@pytest.mark.parametrize(
    ("reason", "said", "cause"),
    [
        ("s._modules['part'].calls == 1   # s.calls += 1", "`s.part.calls` changes from call to call", STATE),
        ("self._modules['layers']._modules['0'].n == 1", "`self.layers[0].n` changes", STATE),
        ("len(self.seen) == 2", "`self.seen` changes its length", STATE),
        ("not self.seen", "`self.seen` changes", STATE),
        ("self.options['k'] == 2", "`self.options['k']` changes", STATE),
        ("not ___dict_contains('k', self.options)", "`self.options` changes", STATE),
        ("not hasattr(self.state, 'k')", "`self.state` changes", STATE),
        ("self.training == True", "`self.training` changes", STATE),
        ("G['STEP'] == 3", "the global `STEP` changes", STATE),
        ("tensor 'self._buffers['h']' size mismatch at index 0.", "`self.h` changes its size", STATE),
        ("tensor 'x' size mismatch at index 1. expected 3, actual 5", "x has another size in axis 1: 3, then 5", SIZE),
        ("tensor 'd['a']' size mismatch at index 1. expected 3, actual 5", "d['a'] has another size in axis 1", SIZE),
        ("2 <= x.size()[0]   # y = x + 1", "x has another size in axis 0", SIZE),
        ("tensor 'x' dispatch key set mismatch. expected A, actual B", "x was made in another mode", ARGUMENT),
        ("n == 1  # return x * n", "the argument n was 1, and is something else now", ARGUMENT),
        ("L['n'] == 1", "the argument n was 1", ARGUMENT),
        ("len(xs) == 1", "the argument xs has another number of elements", ARGUMENT),
        ("___check_type_id(n, 139901), type=<class 'float'>", "the argument n is of another type", ARGUMENT),
        ("expected type of 'q' to be a tensor type, ' but found <class 'Parameter'>", "the argument q is of", ARGUMENT),
        ("GLOBAL_STATE changed: num_threads", "a global setting of torch has changed", ""),
        ("x is n", "x is n", ""),
    ],
)  # fmt: skip
def test_each_kind_of_reason(reason, said, cause):
    found = explained([f"0/0: {reason}"], "")
    assert said in found.message
    assert "each change causes a recompilation" in found.message
    assert found.cause == cause
    assert said in in_words(RECOMPILES, legible(f"0/1: {reason}"))[0]
