"""The workload: a model with its inputs, stored on disk."""

from __future__ import annotations

from typing import Literal

from autocompile.core.environment import GpuKind
from autocompile.core.identity import Identity
from autocompile.core.pipeline import InputPipeline
from autocompile.core.serde import Record
from autocompile.core.words import WorkloadKind


class TensorSpec(Record, frozen=True):
    """One tensor among the arguments: `path` is its place in them, strides are in elements."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str


class Signature(Record, frozen=True):
    """The form of one kind of call, and its share of all calls (`weight`)."""

    tensors: tuple[TensorSpec, ...]
    constants: dict[str, str]
    weight: float


class TorchSettings(Record, frozen=True):
    """Torch's settings in the user's process when the workload was stored.

    `matmul_precision` and `cudnn_tf32` are the values of torch's older functions. They are "" and null if these
    functions raise because the precision was set per backend; then `precisions` has the values, by the backend's name
    in `torch.backends`. `switches`: other settings of `torch.backends` that change numerics or kernels, if this version
    of torch has them.
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
    """How a model is trained: the facts that the search and the report need.

    Attributes:
        optimizer: The class of the optimizer.
        accumulate: How many batches make one step.
        clip_norm: The norm to which gradients are clipped, or null.
        own_loss: Whether the loss is the `.loss` of the model's output.
        without: Implementations of the optimizer (`foreach`, `fused`, `compiled`) and precisions (`fp16`) that cannot
            be tried, with the reason.
        batch: Samples per batch: as many as were given (`fixed`), the best number found (`tune`), or one of these.
        by_closure: Whether the optimizer calls a closure for the loss, as often as it needs. The unit of work is then
            one such call, which updates nothing.
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
        """The kind of the workload."""
        return "closure" if self.by_closure else "training"


class GenerationEntry(Record, frozen=True):
    """How a model generates text with transformers' `generate`, one part of which is tuned.

    Attributes:
        part: The part that is tuned: the `decode` steps, or the calls for the `prompt`.
        module: The class of the model.
        texts: The number of calls of `generate` that were observed.
        prompt_tokens: The tokens of the longest prompt.
        new_tokens: All tokens that were generated.
        prefill_share: The share of the time that was spent on prompts.
        capacity: The number of tokens, prompt included, that the cache of a decode step has memory for.
        layers: The number of layers of the cache.
        options: Further arguments of each such call of the model, as Python literals.
        padded: Whether prompts with padding are tuned, too, so that the tuned call takes a mask.
    """

    module: str
    texts: int
    prompt_tokens: int
    new_tokens: int
    prefill_share: float
    capacity: int
    layers: int
    options: dict[str, str] = {}
    part: Literal["decode", "prompt"] = "decode"
    padded: bool = False


class ScriptEntry(Record, frozen=True):
    """What was seen of the model in a watched script.

    Attributes:
        module: The class of the model, or the name of the function.
        calls: How many of its calls were seen.
        seconds: How long the script was watched, since its first call of any module.
        share: The share of that time that was spent in the calls.
        whole: Whether the script ran to its end.
        with_gradients: Whether it was called with gradients enabled, although none were computed.
        autocast: The dtype of the autocast around the calls, or "".
        is_compiled: Whether the script itself compiles the model.
        function: The function whose calls are tuned, as `pkg.mod:name`, or `name` if the script itself defines it; ""
            if the calls of a module are tuned.
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
    """A model with its inputs, stored on disk.

    Attributes:
        kind: What a sample is. `inference`: a call. `training`: the batches of a step. `closure`: the batches of one
            call of the closure that the optimizer is given. `generation`: a decode step. `prompt`: the call for a
            prompt.
        directory: Contains `workload.pt`.
        fingerprint: A digest of the identity and the signatures.
        model_fingerprint: A digest of the identity.
        modules: The modules that its pickle imports, in the order in which it needs them.
        search_path: What `sys.path` must contain for that.
        pipeline: How long the inputs take, if they come from an iterable.
        notes: How samples were made.
        identity: The facts that identify the model.
        left_out: The note on the parts of a batch that the model does not get, or "".
        active_in_training: The modules that compute something else because they are in training mode, in words.
        training: How the model is trained; null if it is called.
        script: What was seen of the model in a watched script; null if the script defines a workload.
        generation: How the model generates text, if its decode step or its prompts are tuned.
        gpus: The GPUs of its tensors; the GPU of `device` comes first.
        prompts: The calls for the prompts of the same model, which are tuned after its decode steps; null if they take
            little time or cannot be tuned.
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
    prompts: Workload | None = None

    @property
    def device_type(self) -> str:
        """`cpu` or `cuda`."""
        return self.device.split(":")[0]
