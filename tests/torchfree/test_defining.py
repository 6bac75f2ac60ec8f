"""Recognize from its text whether a script defines its workload."""

import pytest

from autocompile.workload.capture.defining import defines_workload


@pytest.mark.parametrize(
    ("text", "defines"),
    [
        ("model = 1\ninputs = 2", True),
        ("model, inputs = 1, 2", True),
        ("def workload(): pass", True),
        ("from net import model\ninputs: int = 2", True),
        ("from beside import *", True),
        ("from math import *", False),
        ("model.x = 1\ninputs[0] = 2", False),
        ("if True:\n    model = 1\nelse:\n    pass\ntry:\n    inputs = 2\nexcept OSError:\n    pass", True),
        ("with open('x') as f:\n    model = 1\n    inputs = 2", True),
        ("model = 1", False),
        ("", False),
        ("def main():\n    model = 1\n    inputs = 2", False),
        ("model = 1\nfor inputs, labels in []:\n    pass", False),
        ("if __name__ == '__main__':\n    model = 1\n    inputs = 2", False),
    ],
)
def test_it_is_told_by_what_is_named_when_it_is_imported(tmp_path, text, defines):
    script = tmp_path / "script.py"
    script.write_text(text)
    (tmp_path / "beside.py").write_text("from script import *\nmodel, inputs = 1, 2\n")
    assert defines_workload(script) is defines
