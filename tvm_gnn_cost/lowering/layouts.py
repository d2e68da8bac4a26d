"""Chooses layouts: NHWC activations, and weights packed as each schedule reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from tvm_gnn_cost.lowering import indexing, normalization
from tvm_gnn_cost.lowering.broadcasts import separate_broadcasts
from tvm_gnn_cost.lowering.composites import fuse_normalizations
from tvm_gnn_cost.lowering.constants import constant, rearrange_constants
from tvm_gnn_cost.lowering.convolutions import lower_convolutions
from tvm_gnn_cost.lowering.forms import Form, Forms, Step, kept_in_order, shape_of
from tvm_gnn_cost.lowering.identities import remove_identities
from tvm_gnn_cost.lowering.minimum_cut import FORBIDDEN, Cut
from tvm_gnn_cost.lowering.packing import free_weights
from tvm_gnn_cost.lowering.padding import pad_weights
from tvm_gnn_cost.lowering.products import read_in_place
from tvm_gnn_cost.lowering.reshapes import sink_reshapes
from tvm_gnn_cost.lowering.transposed import convolve_transposed
from tvm_gnn_cost.lowering.winograd import use_winograd

#: The convolutions that TVM lowers in NHWC; it does not lower transposed ones.
_CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")


def legalize(mod: tvm.IRModule) -> tuple[tvm.IRModule, tvm.IRModule | None]:
    """Lowers a Relax module to fused TensorIR functions, with convolutions in NHWC and weights in a free layout.

    Args:
        mod: A module whose weights are constants.

    Returns:
        The module with direct convolutions, and one with Winograd convolutions; None if no convolution is suitable.
    """
    for item in (
        relax.transform.DecomposeOpsForInference(),
        rearrange_constants,
        remove_identities,
        convolve_transposed,
        convert_layouts,
        read_in_place,
        lower_convolutions,
        fuse_normalizations,
        sink_reshapes,
        separate_broadcasts,
        pad_weights,
    ):
        mod = item(mod)
    other = use_winograd(mod)
    return _lowered(mod), None if other is mod else _lowered(other)


def lower_operators(mod: tvm.IRModule) -> tvm.IRModule:
    """Lowers operators to TensorIR as TVM does, except for those that this package lowers itself."""
    return relax.transform.LegalizeOps({**indexing.LOWERED, "relax.nn.layer_norm": normalization.layer_norm})(mod)


def _lowered(mod: tvm.IRModule) -> tvm.IRModule:
    for item in (lower_operators, relax.get_pipeline("zero"), free_weights):
        mod = item(mod)
    return mod


def convert_layouts(mod: tvm.IRModule) -> tvm.IRModule:
    """Converts convolutions to channels-last, and the operators between them where that saves transposes.

    Operators that this pass does not know are left unchanged. TVM's pass, ``ConvertLayout``, fails on many operators
    and inserts transposes around others.

    Args:
        mod: A module in Relax's operators; one without a convolution is returned unchanged.
    """
    names = [var for var, function in mod.functions_items() if _is_network(function)]
    if not names:
        return mod
    flat = relax.transform.ToNonDataflow()(mod)
    for var in names:
        flat.update_func(var, _Conversion(flat[var]).converted())
    for item in (
        relax.transform.ConvertToDataflow(1),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination([var.name_hint for var in names]),
    ):
        flat = item(flat)
    mod = mod.clone()
    for var in names:
        mod.update_func(mod.get_global_var(var.name_hint), flat[var.name_hint])
    return mod


def _is_network(function: Any) -> bool:
    """Whether a function has a convolution that TVM compiles, not an external library."""
    if not isinstance(function, relax.Function) or not isinstance(function.body, relax.SeqExpr):
        return False
    if any(function.attrs and name in function.attrs for name in ("Primitive", "Composite", "Codegen")):
        return False
    values = (binding.value for block in function.body.blocks for binding in block.bindings)
    return any(isinstance(value, relax.Call) and getattr(value.op, "name", "") in _CONVOLUTIONS for value in values)


class _Conversion:
    """Rewrites a function without dataflow blocks.

    Each variable keeps its original form, so operators that do not change need only their operands bound before them.
    Any other form of a variable is bound once.
    """

    def __init__(self, function: relax.Function) -> None:
        self.function = function
        self.old = [binding for block in function.body.blocks for binding in block.bindings]
        self.steps = self._steps()
        self.bindings: list[Any] = []
        self.builder = relax.BlockBuilder()
        #: Variable -> its forms that are bound; () is the original one.
        self.there: dict[Any, dict[Form, Any]] = {}
        #: The variables of which only other forms are bound.
        self.unbound: set[Any] = set()
        #: The variables that are permutations of others.
        self.permuted: dict[Any, tuple[Any, Form]] = {}
        #: Permuted variables and constants.
        self.done: dict[tuple[Any, Form], Any] = {}
        self.constants: dict[tuple[Any, Form], Any] = {}

    def _steps(self) -> list[Step | None]:
        """How each binding is computed in another form, where possible."""
        forms, result = Forms(), list[Step | None]()
        for binding in self.old:
            for variable in relax.analysis.free_vars(binding.value):
                forms.readers.setdefault(variable, []).append(binding.value)
        for binding in self.old:
            step = forms.step(binding.var, binding.value) if isinstance(binding, relax.VarBinding) else None
            if step is not None and not step.reads and not step.always:
                step = None
            forms.bound[binding.var] = binding.value
            if step is not None and step.gives is not None:
                forms.given[binding.var] = step.gives
                near = (item in forms.near and forms.given[item] == form for item, form in step.reads)
                if getattr(getattr(binding.value, "op", None), "name", "") in _CONVOLUTIONS or any(near):
                    forms.near.add(binding.var)
            result.append(step)
        return result

    def _choose(self) -> list[bool]:
        """For each binding, whether it is computed in the other form, so that transposes move the fewest bytes."""
        cut = Cut()
        nodes = [cut.node() for _ in self.old]
        forms_of: dict[Any, list[int]] = {
            variable: [cut.SECOND] for variable in relax.analysis.free_vars(self.function.body.body)
        }
        formed: dict[tuple[Any, Form], list[int]] = {}
        for binding, step, node in zip(self.old, self.steps, nodes, strict=True):
            if step is None or step.always:
                cut.fix(node, first=step is not None)
            for variable in relax.analysis.free_vars(binding.value) if step is None else step.others:
                forms_of.setdefault(variable, []).append(cut.SECOND)
            for variable, form in () if step is None else step.reads:
                formed.setdefault((variable, form), []).append(node)
                forms_of.setdefault(variable, []).append(node)
        made = {
            binding.var: (node, step)
            for binding, step, node in zip(self.old, self.steps, nodes, strict=True)
            if step is not None
        }
        # A value is transposed once, however many operators read it in that form: they share a node of the graph
        # between them and the operator that computes the value.
        for variable, readers in forms_of.items():
            maker, step = made.get(variable, (cut.SECOND, None))
            if step is not None and step.gives is not None:
                between = cut.node()
                cut.arc(maker, between, self._cost(variable, step.gives, step))
                for reader in readers:
                    cut.arc(between, reader, FORBIDDEN)
        for (variable, form), readers in formed.items():
            maker, step = made.get(variable, (cut.SECOND, None))
            between = cut.node()
            for reader in readers:
                cut.arc(reader, between, FORBIDDEN)
            given = step is not None and step.gives == form
            cut.arc(between, maker if given else cut.SECOND, self._cost(variable, form, step))
        first = cut.first_side()
        return [node in first for node in nodes]

    @staticmethod
    def _cost(variable: Any, form: Form, step: Step | None) -> int:
        """The cost of transposing a variable to a form or back."""
        shape = shape_of(variable)
        if shape is None:
            return FORBIDDEN
        shape = [1] * (len(form) - len(shape)) + shape
        if kept_in_order(shape, form):
            return 1
        # An elementwise operator after a product is fused with it; the transpose comes after both.
        return (4 if step is not None and step.elementwise else 5) * max(1, math.prod(shape))

    def converted(self) -> relax.Function:
        """The function in the chosen forms."""
        for binding, step, chosen in zip(self.old, self.steps, self._choose(), strict=True):
            if step is None or not chosen:
                for variable in relax.analysis.free_vars(binding.value):
                    self._own(variable)
                self._bind(binding)
                continue
            for variable in step.others:
                self._own(variable)
            value = step.emit(self)
            if not isinstance(value, relax.Var):
                value = self.emit(value, binding.var.name)
            self.there[binding.var] = {() if step.gives is None else step.gives: value}
            self.unbound.add(binding.var)
        for variable in relax.analysis.free_vars(self.function.body.body):
            self._own(variable)
        body = relax.SeqExpr([relax.BindingBlock(self.bindings)], self.function.body.body)
        old = self.function
        return relax.Function(old.params, body, old.ret_ty, old.is_pure, old.attrs)

    def emit(self, value: Any, name: str = "lv") -> Any:
        """Binds a call to a new variable."""
        value = self.builder.normalize(value)
        variable = relax.Var(name, value.ty)
        self._bind(relax.VarBinding(variable, value))
        return variable

    def at(self, value: Any, form: Form) -> Any:
        """A value in a form; one of a lower rank than the form's gets leading axes of size 1."""
        if not isinstance(value, relax.Var):
            return self._constant(value, form)
        if isinstance(value.ty, relax.TensorType) and not value.ty.ndim:
            self._own(value)
            return value
        there = self.there.setdefault(value, {})
        if form not in there:
            there[form] = self._brought(value, form)
        return there[form]

    def _brought(self, variable: Any, form: Form) -> Any:
        """Binds a variable in a form that is not bound yet."""
        given: Form = ()
        source = variable
        if variable in self.unbound:
            given, source = next(iter(self.there[variable].items()))
        if given and len(given) != len(form):
            self._own(variable)
            given, source = (), variable
        permutation = tuple(given.index(axis) for axis in form) if given else form
        shape = shape_of(source)
        assert shape is not None, variable
        if len(shape) < len(form):
            shape = [1] * (len(form) - len(shape)) + shape
            if not kept_in_order(shape, permutation):
                source = self.emit(relax.op.reshape(source, shape))
        return self._rearranged(source, shape, permutation)

    def _rearranged(self, source: Any, shape: Sequence[int], permutation: Form) -> Any:
        """The permuted value; a permutation of a permutation is composed."""
        while source in self.permuted and source.ty.ndim == len(permutation):
            source, inner = self.permuted[source]
            permutation = tuple(inner[axis] for axis in permutation)
            shape = shape_of(source) or shape
        if permutation == tuple(range(len(permutation))) and source.ty.ndim == len(permutation):
            return source
        if (source, permutation) not in self.done:
            if kept_in_order(shape, permutation):
                output = self.emit(relax.op.reshape(source, [shape[axis] for axis in permutation]))
            else:
                output = self.emit(relax.op.permute_dims(source, permutation))
            self.done[source, permutation] = output
        return self.done[source, permutation]

    def _own(self, variable: Any) -> None:
        """Binds a variable in its original form, if only other forms are bound."""
        if variable not in self.unbound:
            return
        self.unbound.remove(variable)
        there = self.there[variable]
        if () in there:
            value = there[()]
        else:
            given, source = next(iter(there.items()))
            inverse = tuple(given.index(axis) for axis in range(len(given)))
            shape = shape_of(source)
            assert shape is not None, variable
            value = self._rearranged(source, shape, inverse)
        there[()] = variable
        self._bind(relax.VarBinding(variable, value))

    def _bind(self, binding: Any) -> None:
        self.bindings.append(binding)
        value = binding.value
        if isinstance(value, relax.Var) and isinstance(value.ty, relax.TensorType):
            self.permuted[binding.var] = (value, tuple(range(value.ty.ndim)))
        elif isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.permute_dims":
            rank = value.ty.ndim
            axes = range(rank)[::-1] if value.attrs.axes is None else [int(axis) % rank for axis in value.attrs.axes]
            if isinstance(value.args[0], relax.Var):
                self.permuted[binding.var] = (value.args[0], tuple(axes))

    def _constant(self, value: Any, form: Form) -> Any:
        """A constant in a form."""
        if not isinstance(value, GenericConst):
            raise TypeError(f"not a constant: {value}")
        if not value.ty.ndim:
            return value
        key = (value, form)
        if key not in self.constants:
            array = value.value.numpy()
            array = array.reshape((1,) * (len(form) - array.ndim) + array.shape).transpose(form)
            self.constants[key] = constant(array, str(value.ty.dtype))
        return self.constants[key]
