"""A short program that runs an exported file with nothing but the file's own library. No torch."""

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
_TEXT = '''"""How {file} is used: {workload} as {meaning}.

It needs {needs}, and not autocompile.
Run as it is, it makes one call with random inputs. README.md tells which argument of the model each input is, and
where each output stands in what the model returns.
"""

{imports}

MODEL = Path(__file__).with_name("{file}")
# The inputs, in order: each one's dtype, sizes, and range of values in the call below; README.md has all sizes.
INPUTS = {{
{inputs}
}}
OUTPUTS = [{outputs}]

{setup}


def run(*inputs):
    """The outputs of a call, in the order of OUTPUTS; takes {arrays} in the order of INPUTS."""
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
    """What is a format's own in an example: its imports, and lines that define what `run` uses and does.

    `needs` names what has to be installed. Where `run` takes tensors, they are on a `DEVICE`.
    """

    needs: str
    imports: str
    setup: str
    run: str


def example_text(form: Format, workload: str, interface: Interface, code: Code, *, arrays: Arrays) -> str:
    """The program, as Python."""
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
