"""Wrong arguments of layers: each names the layer, says what was expected and what came, and how to mend it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.network.api.definition import Network
from dovetail.network.api.tensor import ITensor

F, H, I, B = dt.float32, dt.float16, dt.int32, dt.DataType.BOOL  # noqa: E741


class Kit:
    """A network and quick ways to tensors."""

    def __init__(self) -> None:
        self.network = Network()

    def t(self, *shape: int, dtype: dt.DataType = F) -> ITensor:
        return self.network.add_input(f"t{self.network.num_inputs}", dtype, shape)

    def c(self, array: Any) -> ITensor:
        array = np.asarray(array)
        return self.network.add_constant(array.shape, array).get_output(0)


def ones(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.ones(shape, dtype)


def change(layer: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(layer, name, value)
    return layer


def with_input(layer: Any, index: int, tensor: Any) -> Any:
    layer.set_input(index, tensor)
    return layer


Make = Callable[[Network, Kit], Any]

AT_ONCE: list[tuple[str, Make, str]] = [
    # refused when it is said, because it can never be right
    ("tensor is None", lambda n, k: n.add_unary(None, dt.UnaryOperation.EXP), "add_unary: 'input' is None"),
    (
        "tensor is an array",
        lambda n, k: n.add_identity(ones(2)),
        "'input' is no tensor; expected a tensor, got ndarray",
    ),
    ("tensor is a layer", lambda n, k: n.add_identity(n.add_identity(k.t(2))), "'input' is a layer"),
    (
        "enum",
        lambda n, k: n.add_activation(k.t(2), 99),
        r"\(Activation\): 'type' is wrong; expected one of ActivationType",
    ),
    (
        "enum by name",
        lambda n, k: n.add_unary(k.t(2), "exp"),
        "'op' is wrong; expected one of UnaryOperation: EXP, LOG",
    ),
    (
        "kernel shape",
        lambda n, k: n.add_convolution_nd(k.t(1, 1, 4, 4), 1, (0, 3), ones(9)),
        "'kernel_size_nd' is wrong",
    ),
    (
        "maps",
        lambda n, k: n.add_convolution_nd(k.t(1, 1, 4, 4), 0, (3, 3), ones(9)),
        "expected an integer at least 1, got 0",
    ),
    ("stride", lambda n, k: change(n.add_pooling_nd(k.t(1, 1, 4, 4), 0, (2, 2)), stride_nd=(0, 1)), "each at least 1"),
    ("window", lambda n, k: n.add_pooling_nd(k.t(1, 1, 4, 4), 0, 2), "'window_size_nd' is wrong; expected a sequence"),
    ("weights", lambda n, k: n.add_constant((1,), np.array(["a"])), "'weights' is not usable as weights"),
    (
        "double weights",
        lambda n, k: n.add_constant((1,), np.ones(1)),
        "type float64 is not one of the contract's types",
    ),
    (
        "permutation",
        lambda n, k: change(n.add_shuffle(k.t(2, 3)), first_transpose=(0, 0)),
        "expected each axis exactly once",
    ),
    ("reshape", lambda n, k: change(n.add_shuffle(k.t(2, 3)), reshape_dims=(-2, 3)), "each at least -1"),
    ("mask", lambda n, k: n.add_reduce(k.t(2), dt.ReduceOperation.SUM, 0, True), "a bit mask with at least one axis"),
    (
        "flag",
        lambda n, k: n.add_reduce(k.t(2), dt.ReduceOperation.SUM, 1, "yes"),
        "'keep_dims' is wrong; expected True or",
    ),
    (
        "number",
        lambda n, k: change(n.add_activation(k.t(2), 0), alpha="a"),
        "'alpha' is wrong; expected a number, got 'a'",
    ),
    (
        "nan",
        lambda n, k: change(n.add_activation(k.t(2), 0), alpha=float("nan")),
        "'alpha' is wrong; expected a number",
    ),
    ("k", lambda n, k: n.add_topk(k.t(4), dt.TopKOperation.MAX, -1, 1), "'k' is wrong; expected an integer at least 0"),
    (
        "index type",
        lambda n, k: n.add_topk(k.t(4), 0, 1, 1, F),
        "'indices_type' is wrong; expected one of INT32, INT64",
    ),
    ("quantize type", lambda n, k: n.add_quantize(k.t(4), k.t(), I), "'to_type' is wrong; expected one of INT8, FP8"),
    (
        "scales",
        lambda n, k: change(n.add_resize(k.t(1, 1)), scales=2.0),
        "'scales' is wrong; expected a sequence of numbers",
    ),
    ("equation", lambda n, k: n.add_einsum([k.t(2)], 3), "'equation' is wrong; expected a string, got 3"),
    ("no inputs", lambda n, k: n.add_concatenation([]), "'inputs' is too short; expected at least 1, got 0"),
    ("inputs no list", lambda n, k: n.add_concatenation(k.t(2)), "'inputs' is no list of tensors"),
    (
        "input index",
        lambda n, k: n.add_identity(k.t(2)).set_input(1, k.t(2)),
        r"input 1 does not exist; expected 0 \(input\)",
    ),
    ("input None", lambda n, k: n.add_identity(k.t(2)).set_input(0, None), "'input 0' is None"),
    (
        "output index",
        lambda n, k: n.add_identity(k.t(2)).get_output(1),
        "output 1 does not exist; expected an index below 1",
    ),
    ("layer name", lambda n, k: change(n.add_identity(k.t(2)), name=""), "the name of a layer is wrong"),
    (
        "too many dims",
        lambda n, k: change(n.add_slice(k.t(2), (0,), (1,), (1,)), start=(0,) * 9),
        "at most 8 dimensions",
    ),
]

WHEN_READ: list[tuple[str, Make, str]] = [
    # refused when type, shape or model is asked for, because a change could still make it right
    (
        "conv rank",
        lambda n, k: n.add_convolution_nd(k.t(1, 1, 4), 1, (3, 3), ones(9)),
        r"\(Convolution\): 'input' has the wrong number of dimensions; expected 4, got 3 't0' \[1,1,4\]\n  fix",
    ),
    (
        "conv count",
        lambda n, k: n.add_convolution_nd(k.t(1, 2, 4, 4), 3, (3, 3), ones(50)),
        "the kernel has the wrong count of weights; expected 54: maps x channels / groups x kernel size, got 50",
    ),
    (
        "conv groups",
        lambda n, k: change(n.add_convolution_nd(k.t(1, 3, 4, 4), 4, (1, 1), ones(4)), num_groups=2),
        "num_groups does not divide the input's channels; got 3 / 2",
    ),
    ("conv bias", lambda n, k: n.add_convolution_nd(k.t(1, 1, 4, 4), 2, (1, 1), ones(2), ones(3)), "expected 2, got 3"),
    (
        "conv type",
        lambda n, k: n.add_convolution_nd(k.t(1, 1, 4, 4, dtype=H), 1, (1, 1), ones(1)),
        "the inputs have different types; expected one type, got 't0' FLOAT16, .* FLOAT\n  fix: add_cast one of them",
    ),
    (
        "conv no kernel",
        lambda n, k: n.add_convolution_nd(k.t(1, 1, 4, 4), 1, (1, 1)),
        "the layer has no kernel\n  fix: pass",
    ),
    (
        "conv stride",
        lambda n, k: change(n.add_convolution_nd(k.t(1, 1, 4, 4), 1, (1, 1), ones(1)), stride_nd=(1,)),
        "'stride_nd' has the wrong length; expected 2, got 1",
    ),
    (
        "deconv count",
        lambda n, k: n.add_deconvolution_nd(k.t(1, 2, 4, 4), 3, (3, 3), ones(50)),
        "expected 54: channels x",
    ),
    ("pool rank", lambda n, k: n.add_pooling_nd(k.t(1, 4, 4), 0, (2, 2)), "'input' has the wrong number of dimensions"),
    ("lrn rank", lambda n, k: n.add_lrn(k.t(4, 4), 3, 1.0, 1.0, 1.0), "the input needs channels at axis 1"),
    (
        "elementwise rank",
        lambda n, k: n.add_elementwise(k.t(2, 3), k.t(3), 0),
        "'input2' has the wrong number of dimensions",
    ),
    (
        "elementwise dims",
        lambda n, k: n.add_elementwise(k.t(2, 3), k.t(2, 4), 0),
        r"dimension 1 of the inputs does not fit; expected equal, or one of them 1, got 't0' \[2,3\] and 't1' \[2,4\]",
    ),
    ("elementwise type", lambda n, k: n.add_elementwise(k.t(2), k.t(2, dtype=I), 0), "got 't0' FLOAT, 't1' INT32"),
    (
        "elementwise flags",
        lambda n, k: n.add_elementwise(k.t(2), k.t(2), dt.ElementWiseOperation.AND),
        "AND does not take this type; expected BOOL, got FLOAT",
    ),
    (
        "sum of flags",
        lambda n, k: n.add_elementwise(k.t(2, dtype=B), k.t(2, dtype=B), 0),
        "SUM does not take this type",
    ),
    (
        "unary type",
        lambda n, k: n.add_unary(k.t(2, dtype=I), dt.UnaryOperation.EXP),
        "EXP does not take this type; expected a floating-point type, got INT32\n  fix: add_cast it",
    ),
    ("not of numbers", lambda n, k: n.add_unary(k.t(2), dt.UnaryOperation.NOT), "expected BOOL, got FLOAT"),
    (
        "select condition",
        lambda n, k: n.add_select(k.t(2), k.t(2), k.t(2)),
        "'condition' has the wrong type; expected BOOL",
    ),
    (
        "prelu rank",
        lambda n, k: n.add_parametric_relu(k.t(2, 3), k.t(3)),
        "'slopes' has the wrong number of dimensions",
    ),
    (
        "scale count",
        lambda n, k: n.add_scale(k.t(1, 3, 4), dt.ScaleMode.CHANNEL, ones(2)),
        "'shift' has the wrong count of weights for CHANNEL; expected 3, got 2",
    ),
    (
        "scale channels",
        lambda n, k: n.add_scale(k.t(1, -1), dt.ScaleMode.CHANNEL, ones(2)),
        "channels is not a constant",
    ),
    (
        "scale axis",
        lambda n, k: n.add_scale_nd(k.t(2, 3), dt.ScaleMode.CHANNEL, ones(2), channel_axis=2),
        "'channel_axis' is out of range; expected -2 to 1 for a tensor of rank 2, got 2",
    ),
    ("scale open", lambda n, k: n.add_scale(k.t(1, 3, -1), dt.ScaleMode.ELEMENTWISE, ones(2)), "constant dimensions"),
    ("softmax axes", lambda n, k: change(n.add_softmax(k.t(2, 3)), axes=0b11), "'axes' must name exactly one axis"),
    (
        "ragged bounds",
        lambda n, k: n.add_ragged_softmax(k.t(2, 3), k.t(2, 2, dtype=I)),
        "must hold one length for each",
    ),
    (
        "constant count",
        lambda n, k: n.add_constant((2, 3), ones(5)),
        r"the weights do not fill the shape; expected 6 for \(2, 3\), got 5",
    ),
    (
        "transpose length",
        lambda n, k: change(n.add_shuffle(k.t(2, 3)), first_transpose=(0, 1, 2)),
        r"'first_transpose' has the wrong length; expected 2, got 3: \(0, 1, 2\)",
    ),
    (
        "reshape volume",
        lambda n, k: change(n.add_shuffle(k.t(2, 3)), reshape_dims=(4, 2)),
        "does not hold the elements",
    ),
    ("reshape rest", lambda n, k: change(n.add_shuffle(k.t(2, 3)), reshape_dims=(4, -1)), "does not hold the elements"),
    ("reshape twice", lambda n, k: change(n.add_shuffle(k.t(2, 3)), reshape_dims=(-1, -1)), "-1 more than once"),
    (
        "reshape copy",
        lambda n, k: change(n.add_shuffle(k.t(2, 3)), reshape_dims=(2, 3, 0)),
        "which the input does not have",
    ),
    (
        "reshape zero",
        lambda n, k: change(n.add_shuffle(k.t(0)), reshape_dims=(0, -1), zero_is_placeholder=False),
        "both 0 and -1 while 0 means empty",
    ),
    (
        "reshape tensor",
        lambda n, k: with_input(n.add_shuffle(k.t(2)), 1, k.t(1)),
        "an input that decides a shape is not an integer tensor; expected INT32 or INT64, got FLOAT 't1'",
    ),
    (
        "reshape tensor rank",
        lambda n, k: with_input(n.add_shuffle(k.t(2)), 1, k.t(1, 1, dtype=I)),
        "'reshape_dims' has the",
    ),
    ("concat axis", lambda n, k: change(n.add_concatenation([k.t(2), k.t(2)]), axis=1), "'axis' is out of range"),
    ("concat rank", lambda n, k: n.add_concatenation([k.t(2), k.t(2, 2)]), r"'inputs\[1\]' has the wrong number"),
    (
        "concat dims",
        lambda n, k: change(n.add_concatenation([k.t(2, 3), k.t(2, 4)]), axis=0),
        "dimension 1 of the inputs differs; expected equal dimensions except axis 0",
    ),
    (
        "padding length",
        lambda n, k: n.add_padding_nd(k.t(2, 3), (1, 1), (1,)),
        "'post_padding_nd' has the wrong length",
    ),
    (
        "padding too long",
        lambda n, k: n.add_padding_nd(k.t(2), (1, 1), (1, 1)),
        "'pre_padding_nd' has the wrong length",
    ),
    ("squeeze", lambda n, k: n.add_squeeze(k.t(2, 3), (1,)), "dimension 1 cannot be removed; expected 1, got 3"),
    ("squeeze axis", lambda n, k: n.add_squeeze(k.t(2, 3), (2,)), "'axes' is out of range"),
    ("unsqueeze", lambda n, k: n.add_unsqueeze(k.t(2), (0, -3)), "'axes' names an axis twice"),
    ("slice length", lambda n, k: n.add_slice(k.t(2, 3), (0,), (1, 1), (1, 1)), "'start' has the wrong length"),
    (
        "slice bounds",
        lambda n, k: n.add_slice(k.t(5), (2,), (3,), (2,)),
        r"leaves the bounds of axis 0; expected elements 0 to 4, got 2 to 6 \(start 2, shape 3, stride 2\)\n  fix",
    ),
    ("slice before", lambda n, k: n.add_slice(k.t(-1), (1,), (3,), (-1,)), "the slice leaves the bounds of axis 0"),
    ("slice axes", lambda n, k: change(n.add_slice(k.t(5, 5), (0, 0), (1, 1), (1, 1)), axes=(0, -2)), "an axis twice"),
    (
        "slice open axes",
        lambda n, k: with_input(n.add_slice(k.t(5), (0,), (1,), (1,)), 5, k.t(1, dtype=I)),
        "'axes' must be known when building",
    ),
    ("slice input", lambda n, k: with_input(n.add_slice(k.t(5), (0,), (1,), (1,)), 1, k.t(2, dtype=I)), "wrong length"),
    (
        "reduce axis",
        lambda n, k: n.add_reduce(k.t(2, 3), 0, 0b100, True),
        "'axes' has a bit beyond the last axis; expected bits 0 to 1 for a tensor of rank 2, got 0b100",
    ),
    ("topk", lambda n, k: n.add_topk(k.t(2, 3), 0, 4, 2), "'k' is larger than the axis; expected at most 3, got 4"),
    ("topk axes", lambda n, k: n.add_topk(k.t(2, 3), 0, 1, 3), "'axes' must name exactly one axis"),
    ("gather axis", lambda n, k: n.add_gather(k.t(2, 3), k.t(1, dtype=I), 2), "'axis' is out of range"),
    (
        "gather type",
        lambda n, k: n.add_gather(k.t(2, 3), k.t(1), 0),
        "'indices' has the wrong type; expected INT32 or INT64",
    ),
    (
        "gather together",
        lambda n, k: change(n.add_gather(k.t(2, 3), k.t(2, dtype=I), 0), num_elementwise_dims=1),
        "'axis' is one of the elementwise dimensions; expected at least 1, got 0",
    ),
    (
        "gather too many",
        lambda n, k: change(n.add_gather(k.t(2, 3), k.t(2, dtype=I), 0), num_elementwise_dims=2),
        "'num_elementwise_dims' is larger than a rank",
    ),
    (
        "gather nd",
        lambda n, k: n.add_gather_v2(k.t(2, 3), k.t(1, 3, dtype=I), dt.GatherMode.ND),
        "is too large; expected 1 to 2",
    ),
    (
        "gather elements",
        lambda n, k: n.add_gather_v2(k.t(2, 3), k.t(2, dtype=I), dt.GatherMode.ELEMENT),
        "'indices' has the",
    ),
    (
        "scatter rank",
        lambda n, k: n.add_scatter(k.t(2, 3), k.t(2, dtype=I), k.t(2), 0),
        "'indices' has the wrong number",
    ),
    ("scatter type", lambda n, k: n.add_scatter(k.t(2), k.t(2, dtype=I), k.t(2, dtype=H), 0), "different types"),
    (
        "one hot values",
        lambda n, k: n.add_one_hot(k.t(2, dtype=I), k.t(3), k.c(np.int32(4)), 0),
        r"must be \(off, on\)",
    ),
    (
        "one hot axis",
        lambda n, k: n.add_one_hot(k.t(2, dtype=I), k.t(2), k.c(np.int32(4)), 2),
        "'axis' is out of range",
    ),
    (
        "reverse axes",
        lambda n, k: change(n.add_reverse_sequence(k.t(2, 3), k.t(2, dtype=I)), batch_axis=0, sequence_axis=0),
        "'batch_axis' and 'sequence_axis' are the same",
    ),
    (
        "matmul inner",
        lambda n, k: n.add_matrix_multiply(k.t(2, 3), 0, k.t(4, 5), 0),
        "the inner dimensions differ; expected 3",
    ),
    (
        "matmul rank",
        lambda n, k: n.add_matrix_multiply(k.t(2, 3), 0, k.t(1, 3, 5), 0),
        "different numbers of batch dimensions",
    ),
    ("matmul small", lambda n, k: n.add_matrix_multiply(k.t(3), 0, k.t(3, 3), 0), "too few dimensions for NONE"),
    ("einsum count", lambda n, k: n.add_einsum([k.t(2, 3)], "ij,jk->ik"), "expected 2 inputs for 'ij,jk->ik', got 1"),
    ("einsum rank", lambda n, k: n.add_einsum([k.t(2)], "ij->i"), "the equation does not fit input 0; expected rank 2"),
    ("resize nothing", lambda n, k: n.add_resize(k.t(1, 1)), "the layer has no size\n  fix: set shape, scales"),
    ("resize length", lambda n, k: change(n.add_resize(k.t(1, 1)), shape=(1,)), "'shape' has the wrong length"),
    ("resize scales", lambda n, k: change(n.add_resize(k.t(1, 1)), scales=(1.0,)), "'scales' has the wrong length"),
    ("grid", lambda n, k: n.add_grid_sample(k.t(1, 1, 4, 4), k.t(1, 2, 2, 3)), "must end in one coordinate for each"),
    (
        "grid mode",
        lambda n, k: change(n.add_grid_sample(k.t(1, 1, 4, 4), k.t(1, 2, 2, 2)), sample_mode=1),
        "'sample_mode' is not one of grid sample; expected FILL, CLAMP, REFLECT, got WRAP",
    ),
    ("nms boxes", lambda n, k: n.add_nms(k.t(1, 5, 3), k.t(1, 5, 2), k.c(np.int32(2))), "'boxes' has the wrong shape"),
    (
        "fill steps",
        lambda n, k: n.add_fill((2, 3), dt.FillOperation.LINSPACE),
        "LINSPACE of several dimensions needs a step",
    ),
    ("fill beta", lambda n, k: with_input(n.add_fill((2, 3), 0), 2, k.t(3)), "'beta' must hold one step for each"),
    ("fill type", lambda n, k: n.add_fill((2,), 1, I), "RANDOM_UNIFORM needs a floating-point type; got INT32"),
    (
        "quantize axis",
        lambda n, k: change(n.add_quantize(k.t(2, 3), k.t(2)), axis=1),
        "the scale does not fit axis 1; expected 3 elements, or one",
    ),
    ("quantize type", lambda n, k: n.add_quantize(k.t(2, dtype=I), k.t()), "only floating-point tensors are quantized"),
    (
        "quantize blocks",
        lambda n, k: change(n.add_quantize(k.t(4, 6), k.t(4, 2)), block_shape=(1, 2)),
        "expected 3 for blocks",
    ),
    ("dequantize type", lambda n, k: n.add_dequantize(k.t(2), k.t()), "only narrow types are dequantized; got FLOAT"),
    (
        "dynamic quantize",
        lambda n, k: n.add_dynamic_quantize(k.t(2, 6), 1, 4, dt.fp8, F),
        "blocks of 4 do not fit axis 1",
    ),
    ("norm rank", lambda n, k: n.add_normalization(k.t(2, 3, 4), k.t(3), k.t(3), 4), "'scale' has the wrong number"),
    (
        "norm groups",
        lambda n, k: change(n.add_normalization(k.t(2, 5, 4), k.t(1, 5, 1), k.t(1, 5, 1), 4), num_groups=2),
        "num_groups does not divide the channels; got 5 / 2",
    ),
    (
        "norm group axes",
        lambda n, k: change(n.add_normalization(k.t(2, 4, 4), k.t(1, 4, 1), k.t(1, 4, 1), 2), num_groups=2),
        r"with groups the axes must be all spatial ones; expected \[2\], got \[1\]",
    ),
    (
        "norm group scale",
        lambda n, k: change(n.add_normalization_v2(k.t(2, 4, 4), k.t(1, 2, 1), k.t(1, 2, 1), 4), num_groups=2),
        r"'scale' and 'bias' have the wrong shape; expected \(1, 4, 1, ...\)",
    ),
    (
        "attention rank",
        lambda n, k: n.add_attention(k.t(2, 3, 4), k.t(1, 2, 3, 4), k.t(1, 2, 3, 4), 1, False),
        "'query' has the",
    ),
    (
        "attention heads",
        lambda n, k: n.add_attention(k.t(1, 3, 2, 4), k.t(1, 2, 3, 4), k.t(1, 2, 3, 4), 0, False),
        "the number of heads must be a constant, and a multiple",
    ),
    (
        "attention lengths",
        lambda n, k: change(
            n.add_attention_v2(k.t(6, 2, 4), k.t(1, 2, 3, 4), k.t(1, 2, 3, 4), 1, 0),
            query_form=dt.AttentionIOForm.PACKED_NHD,
        ),
        "'query_lengths' is needed for packed",
    ),
    (
        "attention rounding",
        lambda n, k: change(
            n.add_attention(k.t(1, 1, 2, 4), k.t(1, 1, 2, 4), k.t(1, 1, 2, 4), 1, False),
            normalization_quantize_to_type=dt.int8,
        ),
        "needs a scale and a type",
    ),
    (
        "rotary rank",
        lambda n, k: n.add_rotary_embedding(k.t(2, 3, 4), k.t(1, 3, 2), k.t(1, 3, 2), False, 0),
        "'input' has the",
    ),
    (
        "cache lengths",
        lambda n, k: change(
            n.add_kv_cache_update(k.t(2, 1, 8, 4), k.t(3, 1, 4), k.t(2, dtype=I)),
            update_form=dt.AttentionIOForm.PACKED_NHD,
        ),
        "'update_lengths' is needed",
    ),
    (
        "cumulative axis",
        lambda n, k: n.add_cumulative(k.t(2), k.c(np.int32(3)), 0, False, False),
        "'axis' is out of range",
    ),
    ("iterator axis", lambda n, k: n.add_loop().add_iterator(k.t(2), axis=1), "'axis' is out of range"),
    (
        "loop output axis",
        lambda n, k: n.add_loop().add_loop_output(k.t(2), dt.LoopOutput.CONCATENATE, 2),
        "'axis' is out of",
    ),
]


@pytest.mark.parametrize(("make", "message"), [row[1:] for row in AT_ONCE], ids=[row[0] for row in AT_ONCE])
def test_refused_at_once(make: Make, message: str) -> None:
    kit = Kit()
    with pytest.raises(dt.UsageError, match=message):
        make(kit.network, kit)


@pytest.mark.parametrize(("make", "message"), [row[1:] for row in WHEN_READ], ids=[row[0] for row in WHEN_READ])
def test_refused_when_read(make: Make, message: str) -> None:
    kit = Kit()
    layer = make(kit.network, kit)
    with pytest.raises(dt.ModelError, match=message) as caught:
        _ = layer.get_output(0).shape
    assert layer.name in str(caught.value), "the layer is named"


def test_a_failed_addition_adds_nothing() -> None:
    kit = Kit()
    with pytest.raises(dt.UsageError):
        kit.network.add_activation(kit.t(2), 99)
    assert kit.network.num_layers == 0
    assert kit.network.add_identity(kit.t(2)).name == "(Unnamed Layer* 0) [Identity]"


def test_an_assertion_that_is_known_to_be_false() -> None:
    kit = Kit()
    kit.network.add_assertion(kit.c(np.array([True, False])), "the sizes must match")
    kit.network.mark_output(kit.network.add_identity(kit.t(2)).get_output(0))
    with pytest.raises(dt.ModelError, match="the assertion is false: the sizes must match"):
        kit.network.to_model()


def test_an_assertion_that_is_known_to_hold_leaves_no_node() -> None:
    kit = Kit()
    kit.network.add_assertion(kit.c(np.array(True)), "never seen")
    kit.network.mark_output(kit.network.add_identity(kit.t(2)).get_output(0))
    assert [node.op_type for node in kit.network.to_model().graph] == ["Identity"]
    kit.network.add_assertion(kit.t(1, dtype=B), "seen when it runs")
    (node,) = [node for node in kit.network.to_model().graph if node.op_type == "Assert"]
    assert (node.domain, len(node.outputs)) == ("dovetail", 0)
    assert node.attributes["message"].as_string() == "seen when it runs"
