"""Generate a short program that runs an exported file with only the file's own library. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autocompile.core.export import Interface
from autocompile.runtime.format import Format

Arrays = Literal["numpy", "torch"]
FILE = "example.py"

_NUMPY = """
def random_input(generator, dtype, sizes, low, high):
    if dtype == "bool":
        made = generator.random(sizes) < 0.5
    elif np.issubdtype(dtype, np.integer):
        made = generator.integers(low, high, sizes, dtype, endpoint=True)
    else:
        made = generator.uniform(low, high, sizes)
    return np.asarray(made, dtype)
"""
_TORCH = """
def random_input(generator, dtype, sizes, low, high):
    dtype = getattr(torch, dtype)
    if dtype is torch.bool:
        made = torch.rand(sizes, generator=generator) < 0.5
    elif dtype.is_floating_point:
        made = torch.rand(sizes, generator=generator) * (high - low) + low
    else:
        made = torch.randint(low, high + 1, sizes, generator=generator)
    return made.to(DEVICE, dtype)
"""
_TEXT = '''"""Example of how to run {file}: {workload} as {meaning}.

It needs {needs}. It does not need autocompile.
Run as a script, it makes one call with random inputs. README.md lists which argument of the model each input is, and
where each output is in the value that the model returns.
"""

{imports}

MODEL = Path(__file__).with_name("{file}")
# The inputs, in order. Each has a dtype, sizes, and the range of values for the call below. README.md lists all sizes
# that the file accepts.
INPUTS = {{
{inputs}
}}
OUTPUTS = [{outputs}]

{setup}


def run(*inputs):
    """Return the outputs of a call, in the order of OUTPUTS. Takes {arrays}, in the order of INPUTS."""
{run}


{random}


if __name__ == "__main__":
    generator = {generator}
    outputs = run(*(random_input(generator, *described) for described in INPUTS.values()))
    for name, output in zip(OUTPUTS, outputs, strict=True):
        print(name, output.dtype, tuple(output.shape))
'''


@dataclass(frozen=True)
class Code:
    """The parts of an example that depend on the format: its imports, its setup lines, and the body of `run`.

    `needs` names what has to be installed. If `run` takes tensors, they are on `DEVICE`.
    """

    needs: str
    imports: str
    setup: str
    run: str


def example_text(form: Format, workload: str, interface: Interface, code: Code, *, arrays: Arrays) -> str:
    """Return the source text of the example program."""
    of_numpy = arrays == "numpy"
    return _TEXT.format(
        workload=workload,
        meaning=form.meaning,
        file=form.file,
        needs=code.needs,
        example=FILE,
        imports=code.imports.strip(),
        inputs="\n".join(
            f'    "{one.name}": ("{one.dtype}", {one.sizes!r}, {one.low!r}, {one.high!r}),' for one in interface.inputs
        ),
        outputs=", ".join(f'"{output.name}"' for output in interface.outputs),
        setup=code.setup.strip(),
        arrays="NumPy arrays" if of_numpy else "tensors",
        run=code.run.strip("\n"),
        random=(_NUMPY if of_numpy else _TORCH).strip(),
        generator="np.random.default_rng(0)" if of_numpy else "torch.Generator().manual_seed(0)",
    )
