"""Which machines there are: shipped ones by name, families of them, and a user's own by file and class."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tinygpu.extensions import Extension, extension, extensions, without_ours
from tinygpu.language.declared import Declared
from tinygpu.language.machine import Machine
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.plan import Plan
from tinygpu.users_code import users_code

# Name -> module:class. A family lists machines for one operation; the first one decides default types.
SHIPPED: Mapping[str, str] = {
    "axpby": "tinygpu.machines.elementwise:Axpby",
    "bias_relu": "tinygpu.machines.elementwise:BiasRelu",
    "transpose": "tinygpu.machines.transpose:MatrixTranspose",
    "convolution": "tinygpu.machines.convolution:Convolution",
    "depthwise_convolution": "tinygpu.machines.convolution:DepthwiseConvolution",
    "matvec": "tinygpu.machines.matvec:Matvec",
    "batched_matmul": "tinygpu.machines.batched_matmul:BatchedMatmul",
    "batched_matmul_hopper": "tinygpu.machines.batched_matmul_hopper:BatchedMatmulHopper",
    "gated_matmul": "tinygpu.machines.gated_matmul:GatedMatmul",
    "grouped_matmul": "tinygpu.machines.grouped_matmul:GroupedMatmul",
    "grouped_matmul_hopper": "tinygpu.machines.grouped_matmul_hopper:GroupedMatmulHopper",
    "grouped_matmul_blackwell": "tinygpu.machines.grouped_matmul_blackwell:GroupedMatmulBlackwell",
    "matmul_w4": "tinygpu.machines.matmul_w4:MatmulW4",
    "matmul_simt": "tinygpu.machines.matmul_simt:MatmulSimt",
    "matmul_ampere": "tinygpu.machines.matmul_ampere:MatmulAmpere",
    "matmul_skinny": "tinygpu.machines.matmul_skinny:MatmulSkinny",
    "matmul_skinny_blackwell": "tinygpu.machines.matmul_skinny_blackwell:MatmulSkinnyBlackwell",
    "matmul_basic_hopper": "tinygpu.machines.matmul_basic_hopper:MatmulBasicHopper",
    "matmul_hopper": "tinygpu.machines.matmul_hopper:MatmulHopper",
    "matmul_blackwell": "tinygpu.machines.matmul_blackwell:MatmulBlackwell",
    "matmul_blackwell_consumer": "tinygpu.machines.matmul_blackwell_consumer:MatmulBlackwellConsumer",
    "matmul_mx": "tinygpu.machines.matmul_block_scaled:MatmulMx",
    "matmul_nvfp4": "tinygpu.machines.matmul_block_scaled:MatmulNvfp4",
    "matmul_blackwell_mx": "tinygpu.machines.matmul_blackwell_scaled:MatmulBlackwellMx",
    "matmul_blackwell_nvfp4": "tinygpu.machines.matmul_blackwell_scaled:MatmulBlackwellNvfp4",
    "matmul_basic_blackwell": "tinygpu.machines.matmul_basic_blackwell:MatmulBasicBlackwell",
    "softmax": "tinygpu.machines.softmax:Softmax",
    "rms_norm": "tinygpu.machines.norm:RmsNorm",
    "layer_norm": "tinygpu.machines.norm:LayerNorm",
    "cross_entropy": "tinygpu.machines.cross_entropy:CrossEntropy",
    "rotary": "tinygpu.machines.rotary:Rotary",
    "rotary_neighbours": "tinygpu.machines.rotary:RotaryNeighbours",
    "quantise_int8": "tinygpu.machines.quantise:QuantiseInt8",
    "quantise_fp8": "tinygpu.machines.quantise:QuantiseFp8",
    "quantise_fp4": "tinygpu.machines.quantise:QuantiseFp4",
    "dequantise": "tinygpu.machines.quantise:Dequantise",
    "permute": "tinygpu.machines.permute:Permute",
    "softmax_backward": "tinygpu.machines.gradients:SoftmaxBackward",
    "cross_entropy_backward": "tinygpu.machines.gradients:CrossEntropyBackward",
    "rms_norm_backward": "tinygpu.machines.gradients:RmsNormBackward",
    "layer_norm_backward": "tinygpu.machines.gradients:LayerNormBackward",
    "top_k": "tinygpu.machines.top_k:TopK",
    "embedding": "tinygpu.machines.embedding:Embedding",
    "scatter_add": "tinygpu.machines.scatter_add:ScatterAdd",
    "histogram": "tinygpu.machines.scatter_add:Histogram",
    "row_reduction": "tinygpu.machines.reductions:RowReduction",
    "column_reduction": "tinygpu.machines.reductions:ColumnReduction",
    "argmax": "tinygpu.machines.reductions:ArgMax",
    "row_scan": "tinygpu.machines.scan:RowScan",
    "long_scan": "tinygpu.machines.scan:LongScan",
    "attention_ampere": "tinygpu.machines.attention_ampere:AttentionAmpere",
    "attention_hopper": "tinygpu.machines.attention_hopper:AttentionHopper",
    "attention_blackwell": "tinygpu.machines.attention_blackwell:AttentionBlackwell",
    "attention_varlen_ampere": "tinygpu.machines.attention_varlen:AttentionVarlenAmpere",
    "attention_varlen_hopper": "tinygpu.machines.attention_varlen:AttentionVarlenHopper",
    "attention_paged_prefill": "tinygpu.machines.attention_paged_prefill:AttentionPagedPrefill",
}
# Plans, by the same names: several kernels as one operation.
PLANS: Mapping[str, str] = {
    "tensor_reduction": "tinygpu.machines.reductions:TensorReduction",
    "attention_decoding": "tinygpu.machines.attention_decoding:AttentionDecoding",
    "attention_paged": "tinygpu.machines.attention_paged:AttentionPaged",
}
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "matmul": (
        "matmul_hopper",
        "matmul_blackwell",
        "matmul_blackwell_consumer",
        "matmul_skinny_blackwell",
        "matmul_skinny",
        "matmul_ampere",
        "matmul_simt",
    ),
    "attention": ("attention_hopper", "attention_blackwell", "attention_ampere"),
    "attention_varlen": ("attention_varlen_hopper", "attention_varlen_ampere"),
    "scan": ("row_scan", "long_scan"),
}


class MachineNotFound(ValueError):
    """No machine by that name, or a file without it."""


@dataclass(frozen=True, slots=True)
class Family:
    """Machines for one operation; a single machine, or a plan, is a family of one."""

    name: str
    machines: tuple[type[Declared], ...]


def family(name: str) -> Family:
    """The machines behind a name: a shipped machine, a family, one of an installed package, or `path/to/file.py:Class`.

    Raises MachineNotFound, and ExtensionError for a name that packages offer and that cannot be used.
    """
    if ".py" in name:
        return Family(name, (_from_file(name),))
    offered = extension("machines", name, (*FAMILIES, *SHIPPED, *PLANS))
    if offered is not None:
        return Family(offered.name, (_offered(offered),))
    key = without_ours(name).lower().replace("-", "_")
    if key in FAMILIES:
        return Family(key, tuple(_shipped(m) for m in FAMILIES[key]))
    if key in SHIPPED or key in PLANS:
        return Family(key, (_shipped(key),))
    known = ", ".join([*FAMILIES, *SHIPPED, *PLANS, *(e.name for e in extensions("machines"))])
    raise MachineNotFound(f"there is no machine {name!r}; there are {known}, and your own as path/to/file.py:ClassName")


def machines_of(declared: type[Declared]) -> tuple[type[Machine], ...]:
    """The machines of which something is made: a machine itself, or the different ones of a plan's steps."""
    if issubclass(declared, Plan):
        return tuple(dict.fromkeys(step.machine for step in declared.step_declarations()))
    return (declared,) if issubclass(declared, Machine) else ()


def _offered(offered: Extension) -> type[Declared]:
    found = offered.imported()
    if not (isinstance(found, type) and issubclass(found, (Machine, Plan))):
        raise offered.wrong(found, "a subclass of Machine or Plan")
    return found


def _shipped(name: str) -> type[Declared]:
    module, cls = {**SHIPPED, **PLANS}[name].split(":")
    found: type[Declared] = getattr(importlib.import_module(module), cls)
    return found


def _from_file(name: str) -> type[Declared]:
    path_text, _, cls = name.rpartition(":")
    if not path_text.endswith(".py"):
        raise MachineNotFound(f"a machine of your own is given as path/to/file.py:ClassName, not {name!r}")
    path = Path(path_text)
    if not path.is_file():
        raise MachineNotFound(f"there is no file {path}")
    module_name = f"tinygpu_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise MachineNotFound(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    # What lies beside the file can be imported, as beside a script of Python's; it hides nothing that is installed.
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    with users_code(f"{path} cannot be imported", DeclarationError):
        spec.loader.exec_module(module)
    found = getattr(module, cls, None)
    if not isinstance(found, type) or not issubclass(found, (Machine, Plan)):
        classes = {k: v for k, v in vars(module).items() if isinstance(v, type)}
        mine = [k for k, v in classes.items() if issubclass(v, (Machine, Plan)) and v not in (Machine, Plan)]
        raise MachineNotFound(f"{path} has no machine {cls!r}; it has {', '.join(mine) or 'none'}")
    return found
