"""Small models by the categories of operators that a CUDA provider of ONNX Runtime is tested by.

The models run wholly on CUDA: ``tests/cuda/host/test_categories.py`` interprets them, ``tests/cuda/gpu`` runs them.
"""

from __future__ import annotations

__all__ = ["CATEGORIES", "HEAD"]

HEAD = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g '
_OLD = '<ir_version: 8, opset_import: ["" : @]> g '
CATEGORIES: dict[str, dict[str, str]] = {
    "Registration": {
        "Add": "(float[3,5] x, float[3,5] z) => (float[3,5] y) { y = Add(x, z) }",
        "MatMul": "(float[8,16] x, float[16,8] z) => (float[8,8] y) { y = MatMul(x, z) }",
        "Gemm": "(float[8,16] x, float[8,16] z, float[8] b) => (float[8,8] y) { y = Gemm<transB=1>(x, z, b) }",
        "Conv": "(float[1,4,6,6] x, float[8,4,3,3] w) => (float[1,8,4,4] y) { y = Conv(x, w) }",
    },
    "Tensor ops": {
        "Reshape": "(float[2,6] x) => (float[3,4] y) { s = Constant<value=int64[2]{3,4}>() y = Reshape(x, s) }",
        "Split": """(float[2,6] x) =>
            (float[2,2] y, float[2,4] z) { s = Constant<value=int64[2]{2,4}>() y, z = Split<axis=1>(x, s) }""",
        "Concat": "(float[2,3] x, float[2,4] z) => (float[2,7] y) { y = Concat<axis=1>(x, z) }",
        "Gather": "(float[5,3] x, int64[4] i) => (float[4,3] y) { y = Gather<axis=0>(x, i) }",
        "Unsqueeze": "(float[2,3] x) => (float[2,1,3] y) { a = Constant<value=int64[1]{1}>() y = Unsqueeze(x, a) }",
        "Tile": "(float[2,3] x) => (float[4,9] y) { r = Constant<value=int64[2]{2,3}>() y = Tile(x, r) }",
        "Pad": "(float[2,3] x) => (float[4,5] y) { p = Constant<value=int64[4]{1,1,1,1}>() y = Pad(x, p) }",
        "Slice": """(float[6,5] x) => (float[2,5] y) {
            s = Constant<value=int64[1]{1}>() e = Constant<value=int64[1]{5}>()
            a = Constant<value=int64[1]{0}>() t = Constant<value=int64[1]{2}>() y = Slice(x, s, e, a, t) }""",
        "Transpose": "(float[2,3,4] x) => (float[4,2,3] y) { y = Transpose<perm=[2,0,1]>(x) }",
        "Cast": "(float[2,3] x) => (int32[2,3] y) { y = Cast<to=6>(x) }",
        "Where": "(float[2,3] x, float[2,3] z) => (float[2,3] y) { c = Greater(x, z) y = Where(c, x, z) }",
        "Flatten": "(float[2,3,4] x) => (float[2,12] y) { y = Flatten<axis=1>(x) }",
        "ArgMax": "(float[4,7] x) => (int64[4] y) { y = ArgMax<axis=1, keepdims=0>(x) }",
        "TopK": """(float[3,9] x) =>
            (float[3,4] y, int64[3,4] i) { k = Constant<value=int64[1]{4}>() y, i = TopK<axis=1>(x, k) }""",
        "Trilu": "(float[4,4] x) => (float[4,4] y) { y = Trilu<upper=0>(x) }",
    },
    "Math ops": {
        "Softmax": "(float[3,7] x) => (float[3,7] y) { y = Softmax<axis=-1>(x) }",
        "Relu": "(float[3,7] x) => (float[3,7] y) { y = Relu(x) }",
        "Sigmoid": "(float[3,7] x) => (float[3,7] y) { y = Sigmoid(x) }",
        "Tanh": "(float[3,7] x) => (float[3,7] y) { y = Tanh(x) }",
        "Einsum": '(float[3,4] x, float[4,5] z) => (float[3,5] y) { y = Einsum<equation="ij,jk->ik">(x, z) }',
        "Einsum of a batch": """(float[2,3,4] x, float[2,4,5] z) =>
            (float[2,3,5] y) { y = Einsum<equation="bij,bjk->bik">(x, z) }""",
    },
    "Reduce": {
        "ReduceMean": "(float[3,5] x) => (float[3,1] y) { a = Constant<value=int64[1]{1}>() y = ReduceMean(x, a) }",
        "ReduceSum": "(float[3,5] x) => (float[1,5] y) { a = Constant<value=int64[1]{0}>() y = ReduceSum(x, a) }",
    },
    "Space/depth": {
        "SpaceToDepth": "(float[1,2,4,4] x) => (float[1,8,2,2] y) { y = SpaceToDepth<blocksize=2>(x) }",
        "DepthToSpace": "(float[1,8,2,2] x) => (float[1,2,4,4] y) { y = DepthToSpace<blocksize=2>(x) }",
        "Upsample": _OLD.replace("@", "9")
        + """(float[1,2,3,3] x) =>
            (float[1,2,6,6] y) { s = Constant<value=float[4]{1.0,1.0,2.0,2.0}>() y = Upsample(x, s) }""",
    },
    "Shape ops": {
        "CumSum": "(float[3,5] x) => (float[3,5] y) { a = Constant<value=int64{1}>() y = CumSum(x, a) }",
        "ConstantOfShape": """(float[2,3] x) => (float[2,3] y) {
            s = Constant<value=int64[2]{2,3}>() c = ConstantOfShape<value=float[1]{2.5}>(s) y = Add(x, c) }""",
        "Resize": """(float[1,2,4,4] x) => (float[1,2,8,8] y) {
            s = Constant<value=float[4]{1.0,1.0,2.0,2.0}>() y = Resize<mode="linear">(x, , s) }""",
        "Sum": "(float[3,5] x, float[5] z, float[3,1] w) => (float[3,5] y) { y = Sum(x, z, w) }",
    },
    "Normalization": {
        "LayerNormalization": """(float[3,8] x, float[8] g, float[8] b) =>
            (float[3,8] y) { y = LayerNormalization(x, g, b) }""",
        "InstanceNormalization": """(float[2,3,4,4] x, float[3] g, float[3] b) => (float[2,3,4,4] y) {
            y = InstanceNormalization(x, g, b) }""",
    },
    "Conv": {
        "ConvTranspose": """(float[1,4,3,3] x, float[4,2,3,3] w) => (float[1,2,7,7] y) {
            y = ConvTranspose<strides=[2,2]>(x, w) }""",
    },
    "Scatter/gather": {
        "GatherND": "(float[4,5] x, int64[2,2] i) => (float[2] y) { y = GatherND(x, i) }",
        "ScatterElements": """(float[4,5] x, int64[2,5] i, float[2,5] u) => (float[4,5] y) {
            y = ScatterElements<axis=0>(x, i, u) }""",
        "ScatterND": """(float[5,3] x, int64[4,1] i, float[4,3] u) =>
            (float[5,3] y) { y = ScatterND<reduction="add">(x, i, u) }""",
        "OneHot": """(int64[4] i) => (float[4,5] y) {
            d = Constant<value=int64{5}>() v = Constant<value=float[2]{0.0,1.0}>() y = OneHot(i, d, v) }""",
    },
    "Spatial": {
        "GridSample": "(float[1,2,4,5] x, float[1,3,3,2] z) => (float[1,2,3,3] y) { y = GridSample(x, z) }",
    },
    "Contrib ops": {
        "FastGelu": "(float[3,8] x, float[8] b) => (float[3,8] y) { y = com.microsoft.FastGelu(x, b) }",
        "Gelu": "(float[3,8] x) => (float[3,8] y) { y = com.microsoft.Gelu(x) }",
        "BiasGelu": "(float[3,8] x, float[8] b) => (float[3,8] y) { y = com.microsoft.BiasGelu(x, b) }",
        "SkipLayerNormalization": """(float[2,3,8] x, float[2,3,8] s, float[8] g, float[8] b) => (float[2,3,8] y) {
            y = com.microsoft.SkipLayerNormalization(x, s, g, b) }""",
        "BiasDropout": """(float[3,8] x, float[8] b, float[3,8] r) => (float[3,8] y) {
            y = com.microsoft.BiasDropout(x, b, r) }""",
        "FusedMatMul": """(float[8,16] x, float[8,16] z) => (float[8,8] y) {
            y = com.microsoft.FusedMatMul<transB=1, alpha=0.5>(x, z) }""",
        "BiasAdd": """(float[2,3,8] x, float[8] b, float[2,3,8] s) =>
            (float[2,3,8] y) { y = com.microsoft.BiasAdd(x, b, s) }""",
        "BiasSplitGelu": "(float[2,3,8] x, float[8] b) => (float[2,3,4] y) { y = com.microsoft.BiasSplitGelu(x, b) }",
        "GemmFastGelu": """(float[4,8] x, float[8,6] w, float[6] b) =>
            (float[4,6] y) { y = com.microsoft.GemmFastGelu(x, w, b) }""",
        "TransposeMatMul": """(float[8,4] x, float[8,6] z) =>
            (float[4,6] y) { y = com.microsoft.TransposeMatMul<transA=1>(x, z) }""",
    },
    "Dropout": {
        "Dropout 7": _OLD.replace("@", "7")
        + "(float[3,5] x) => (float[3,5] y) { d = Dropout<ratio=0.5>(x) y = Neg(d) }",
        "Dropout 10": _OLD.replace("@", "10")
        + "(float[3,5] x) => (float[3,5] y) { d = Dropout<ratio=0.5>(x) y = Neg(d) }",
        "Dropout 7 with a mask": _OLD.replace("@", "7")
        + "(float[3,5] x) => (float[3,5] y, float[3,5] m) { d, m = Dropout<ratio=0.5>(x) y = Neg(d) }",
        "Dropout 10 with a mask": _OLD.replace("@", "10")
        + "(float[3,5] x) => (float[3,5] y, bool[3,5] m) { d, m = Dropout<ratio=0.5>(x) y = Neg(d) }",
    },
    "Quantization": {
        "QuantizeLinear": """(float[3,8] x) => (uint8[3,8] y) {
            s = Constant<value=float{0.05}>() z = Constant<value=uint8{128}>() y = QuantizeLinear(x, s, z) }""",
        "DequantizeLinear": """(uint8[3,8] x) => (float[3,8] y) {
            s = Constant<value=float{0.05}>() z = Constant<value=uint8{2}>() y = DequantizeLinear(x, s, z) }""",
        "MatMulInteger": """(uint8[3,8] x, int8[8,4] w) => (int32[3,4] y) {
            z = Constant<value=uint8{2}>() y = MatMulInteger(x, w, z) }""",
    },
    "GatherBlockQuantized": {
        "GatherBlockQuantized": """(uint8[6,16] x, int64[2,3] i, float[6,2] s) => (float[2,3,32] y) {
            y = com.microsoft.GatherBlockQuantized<bits=4, block_size=16>(x, i, s) }""",
    },
    "Identity": {
        "Identity 13": _OLD.replace("@", "13") + "(float[3,5] x) => (float[3,5] y) { y = Identity(x) }",
        "Identity 25": """<ir_version: 12, opset_import: ["" : 25]> g (float[3,5] x) =>
            (float[3,5] y) { y = Identity(x) }""",
    },
    "TensorSeq": {
        "SequenceAt": """(float[3,5] x, float[3,5] z) => (float[3,5] y) {
            i = Constant<value=int64{-1}>() s = SequenceConstruct(x, z) t = SequenceErase(s) u = SequenceInsert(t, z)
            a = SequenceAt(u, i) y = Exp(a) }""",
        "ConcatFromSequence": """(float[3,5] x, float[3,5] z) => (float[3,2,5] y) {
            s = SequenceConstruct(x, z) y = ConcatFromSequence<axis=1, new_axis=1>(s) }""",
        "SplitToSequence": """(float[3,7] x) => (float[3,2] y, float[3] z) {
            i = Constant<value=int64{1}>() k = Constant<value=int64[3]{4,2,1}>() s = SplitToSequence<axis=1>(x, k)
            y = SequenceAt(s, i) t = SplitToSequence<axis=1, keepdims=0>(x) a = SequenceAt(t, i) z = Neg(a) }""",
        "SequenceLength": """(float[4,5] x) => (float[4,5] y) {
            s = SplitToSequence<axis=0>(x) n = SequenceLength(s) f = Cast<to=1>(n) y = Mul(x, f) }""",
        "SequenceInsert": """(float[3,5] x, float[3,5] z) => (float[6,5] y) {
            i = Constant<value=int64{0}>() e = SequenceEmpty() s = SequenceInsert(e, x) t = SequenceInsert(s, z, i)
            y = ConcatFromSequence<axis=0>(t) }""",
    },
}
"""By the names that the categories have there."""
