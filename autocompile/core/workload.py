"""What is tuned: a model with its inputs, as it lies spooled on disk."""

from __future__ import annotations

from autocompile.core.environment import GpuKind
from autocompile.core.identity import Identity
from autocompile.core.pipeline import InputPipeline
from autocompile.core.serde import Record
from autocompile.core.words import WorkloadKind


class TensorSpec(Record, frozen=True):
    """One tensor among the arguments: `path` is where it sits, strides are in elements."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str


class Signature(Record, frozen=True):
    """What one kind of call looks like, and which share of the calls it is."""

    tensors: tuple[TensorSpec, ...]
    constants: dict[str, str]
    weight: float


class TorchSettings(Record, frozen=True):
    """What the user's process had set when the workload was spooled.

    `matmul_precision` and `cudnn_tf32` are as torch's older functions tell them, "" and null where these refuse to, as
    the precision was set by backend; then `precisions` has it, by the backend's name in `torch.backends`. `switches`:
    what else of `torch.backends` changes numerics or kernels, as far as this torch has it.
    """

    threads: int
    matmul_precision: str
    default_dtype: str
    deterministic: bool
    cudnn_benchmark: bool
    cudnn_tf32: bool | None
    precisions: dict[str, str] = {}
    switches: dict[str, bool] = {}


class TrainingEntry(Record, frozen=True):
    """How a model is trained: what those who decide and the report need to know of it.

    `optimizer`: its class. `accumulate`: how many batches make one step. `clip_norm`: to which norm gradients are
    clipped, or null. `own_loss`: whether the loss is the `.loss` of the model's output. `without`: implementations of
    the optimizer (`foreach`, `fused`, `compiled`) that cannot be tried, and precisions (`fp16`) that it cannot be
    trained in, with why. `batch`: how many samples a batch may have: as many as were given (`fixed`), what is found to
    pay (`tune`), or one of these. `by_closure`: whether the optimizer calls for the loss itself, as often as it likes;
    the unit of work is then one such call, which updates nothing.
    """

    optimizer: str
    accumulate: int = 1
    clip_norm: float | None = None
    own_loss: bool = False
    without: dict[str, str] = {}
    batch: str | tuple[int, ...] = "fixed"
    by_closure: bool = False

    @property
    def kind(self) -> WorkloadKind:
        """Of a workload that is trained so."""
        return "closure" if self.by_closure else "training"


class GenerationEntry(Record, frozen=True):
    """How a model generates text with transformers' `generate`, of which the decode step is what is tuned.

    `module`: the model's class. `texts`: for how many calls of `generate` that was seen, with `prompt_tokens` in the
    longest prompt, and `new_tokens` in all; `prefill_share` of their time went into the prompts. `capacity`: for how
    many tokens, prompt included, the cache of a decode step has memory. `layers`: how many layers it has. `options`:
    further arguments of each call of the model, as Python writes them.
    """

    module: str
    texts: int
    prompt_tokens: int
    new_tokens: int
    prefill_share: float
    capacity: int
    layers: int
    options: dict[str, str] = {}


class ScriptEntry(Record, frozen=True):
    """What was seen of the model in a script that was watched.

    `module`: its class. `calls` of it, in `seconds` since the first call of any module, of which its calls took
    `share`. `whole`: whether the script ran to its end. `with_gradients`: whether it was called with gradients enabled,
    though none were computed. `autocast`: the dtype of the autocast around the calls, or "". `is_compiled`: whether the
    script compiles it itself. `function`: of which the calls were seen, where these are tuned and not a module's, as
    `pkg.mod:name`, or `name` for one that the script itself defines; `module` is then its name.
    """

    module: str
    calls: int
    seconds: float
    share: float
    whole: bool
    with_gradients: bool = False
    autocast: str = ""
    is_compiled: bool = False
    function: str = ""


class Workload(Record, tag="workload", frozen=True):
    """A spooled model with its inputs: a sample is a call of it; of kind `training`, the batches of a step; of kind
    `closure`, the batches of one call of the closure that an optimizer is given; of kind `generation`, a decode step.

    `directory` holds `workload.pt`; `modules` are what its pickle imports, in the order in which it
    needs them; `search_path` is what `sys.path` must have for that. `identity` is what makes the model
    the one that it is, `model_fingerprint` a digest of that, `fingerprint` of that and the signatures.
    `pipeline` is how long the inputs take to come, where they come one by one; `notes` tell how samples were made,
    and `left_out` is the one of them that tells which parts of a batch the model does not get, or "".
    `active_in_training`: the modules that compute something else because they are in training mode, in words.
    `training`: how it is trained, null where it is called. `script`: what was seen of it in a script that does not
    define it as a workload, else null. `generation`: how it generates text, where its decode step is tuned. `gpus`:
    those that its tensors lie on, the one of `device` first.
    """

    name: str
    kind: WorkloadKind
    device: str
    directory: str
    signatures: tuple[Signature, ...]
    fingerprint: str
    model_fingerprint: str
    is_module: bool
    in_training_mode: bool
    parameter_count: int
    parameter_bytes: int
    has_conv: bool
    parameter_dtype: str = ""
    settings: TorchSettings | None = None
    modules: tuple[str, ...] = ()
    search_path: tuple[str, ...] = ()
    pipeline: InputPipeline | None = None
    notes: tuple[str, ...] = ()
    phases_s: dict[str, float] = {}
    sample_count: int = 1
    identity: Identity = Identity()
    left_out: str = ""
    active_in_training: tuple[str, ...] = ()
    has_recurrence: bool = False
    training: TrainingEntry | None = None
    script: ScriptEntry | None = None
    generation: GenerationEntry | None = None
    gpus: tuple[GpuKind, ...] = ()

    @property
    def device_type(self) -> str:
        """`cpu` or `cuda`."""
        return self.device.split(":")[0]
