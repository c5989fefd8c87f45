"""torch.export.graph_signature: what each input and output of an exported graph is to the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from graphc.export import containers
from graphc.export.contents import Variant
from graphc.export.names import input_names, leaf_names, output_names
from graphc.export.signature import Weights


@dataclass
class TensorArgument:
    """A tensor of the graph."""

    name: str


@dataclass
class SymIntArgument:
    """A free size."""

    name: str


@dataclass
class ConstantArgument:
    """A number, a text or None that is part of the program."""

    name: str
    value: int | float | bool | str | None


ArgumentSpec = TensorArgument | SymIntArgument | ConstantArgument


class InputKind(Enum):
    """What an input of the graph is to the model."""

    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()
    CUSTOM_OBJ = auto()
    TOKEN = auto()


class OutputKind(Enum):
    """What an output of the graph is to the model."""

    USER_OUTPUT = auto()
    LOSS_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    PARAMETER_MUTATION = auto()
    GRADIENT_TO_PARAMETER = auto()
    GRADIENT_TO_USER_INPUT = auto()
    USER_INPUT_MUTATION = auto()
    TOKEN = auto()


@dataclass
class InputSpec:
    """One input: its kind, its name in the graph, and the name (`target`) that the model has for
    it; `persistent` says of a buffer whether it is in the state_dict."""

    kind: InputKind
    arg: ArgumentSpec
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclass
class OutputSpec:
    """One output: its kind, its name in the graph, and the name of what it is written to."""

    kind: OutputKind
    arg: ArgumentSpec
    target: str | None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclass
class ExportGraphSignature:
    """The inputs (weights, then arguments) and the outputs (writes, then results) of a graph."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple(
            s.target for s in self.input_specs if s.kind is kind and s.target is not None
        )

    def _by_name(self, specs: Any, kind: Any) -> dict[str, str]:
        return {s.arg.name: s.target for s in specs if s.kind is kind and s.target is not None}

    @property
    def parameters(self) -> tuple[str, ...]:
        """The model's names of the parameters that the graph reads."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        """The model's names of the buffers that the graph reads."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """Those of them that are not in the state_dict."""
        return tuple(
            s.target for s in self.input_specs
            if s.kind is InputKind.BUFFER and s.persistent is False and s.target is not None
        )

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """The names of other tensors that the model read."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def lifted_custom_objs(self) -> tuple[str, ...]:
        """There are none."""
        return self._targets(InputKind.CUSTOM_OBJ)

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """The names of the arguments' tensors; numbers, texts and None as they are."""
        return tuple(
            _shown(s.arg) for s in self.input_specs if s.kind is InputKind.USER_INPUT
        )

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        """The names of the results' tensors and sizes; other results as they are."""
        wanted = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        return tuple(_shown(s.arg) for s in self.output_specs if s.kind in wanted)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """The model's name by the input's name."""
        return self._by_name(self.input_specs, InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """The model's name by the input's name."""
        return self._by_name(self.input_specs, InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """The constant's name by the input's name."""
        return self._by_name(self.input_specs, InputKind.CONSTANT_TENSOR)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """The buffer's name by the name of the output that it becomes."""
        return self._by_name(self.output_specs, OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        """The parameter's name by the name of the output that it becomes."""
        return self._by_name(self.output_specs, OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """The argument's name by the name of the output that it becomes."""
        return self._by_name(self.output_specs, OutputKind.USER_INPUT_MUTATION)

    @property
    def backward_signature(self) -> None:
        """None: a program has no backward pass."""
        return

    def __str__(self) -> str:
        inputs, outputs = map(str, self.input_specs), map(str, self.output_specs)
        return "\n".join(["", "# inputs", *inputs, "", "# outputs", *outputs, ""])


def _shown(arg: ArgumentSpec) -> Any:
    return arg.value if isinstance(arg, ConstantArgument) else arg.name


# --- of a program --------------------------------------------------------------------------------


def described(variant: Variant, weights: Weights) -> ExportGraphSignature:
    """The signature of a graph of a program."""
    names = input_names(variant, weights)
    inputs = [
        _weight(name, source["weight"], weights)
        for name, source in zip(names, variant.signature.inputs, strict=True) if "weight" in source
    ]
    by_leaf = {
        source["argument"]: name
        for name, source in zip(names, variant.signature.inputs, strict=True)
        if "argument" in source
    }
    paths = leaf_names(variant.signature)
    absent = containers.absent(variant.signature.arguments)
    for leaf, spec in enumerate(variant.signature.specs()):
        arg: ArgumentSpec
        if absent[leaf]:
            continue
        if "value" in spec:
            arg = ConstantArgument(paths[leaf], spec["value"])
        else:
            arg = TensorArgument(by_leaf.get(leaf, paths[leaf]))
        inputs.append(InputSpec(InputKind.USER_INPUT, arg, None))
    return ExportGraphSignature(inputs, _outputs(variant, weights, by_leaf))


def _weight(name: str, target: str, weights: Weights) -> InputSpec:
    arg = TensorArgument(name)
    if target in weights.parameters:
        return InputSpec(InputKind.PARAMETER, arg, target)
    if target in weights.state:
        return InputSpec(InputKind.BUFFER, arg, target, True)
    if target in weights.buffers:
        return InputSpec(InputKind.BUFFER, arg, target, False)
    return InputSpec(InputKind.CONSTANT_TENSOR, arg, target)


def _outputs(
    variant: Variant, weights: Weights, by_leaf: Mapping[int, str]
) -> list[OutputSpec]:
    names = output_names(variant, weights)
    paths = leaf_names(variant.signature)
    found: list[OutputSpec] = []
    for write in variant.signature.writes:
        arg = TensorArgument(names[write["output"]])
        if "argument" in write:
            target = by_leaf.get(write["argument"], paths[write["argument"]])
            found.append(OutputSpec(OutputKind.USER_INPUT_MUTATION, arg, target))
        else:
            kind = OutputKind.BUFFER_MUTATION
            if write["weight"] in weights.parameters:
                kind = OutputKind.PARAMETER_MUTATION
            found.append(OutputSpec(kind, arg, write["weight"]))
    results = variant.signature.results
    absent = containers.absent(results)
    for number, leaf in enumerate(containers.leaves_of(results)):
        if absent[number]:
            continue
        ((kind_, value),) = leaf.items()
        result: ArgumentSpec
        if kind_ == "output":
            result = TensorArgument(names[value])
        elif kind_ == "argument":
            result = TensorArgument(by_leaf.get(value, paths[value]))
        elif kind_ == "weight":
            result = TensorArgument(value)
        elif kind_ == "size":
            result = SymIntArgument(value)
        else:
            result = ConstantArgument(f"result_{number}", value)
        found.append(OutputSpec(OutputKind.USER_OUTPUT, result, None))
    return found
