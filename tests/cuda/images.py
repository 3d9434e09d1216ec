"""Small networks over images, as ONNX writes them: convolutions of every kind, and what comes before and after."""

from __future__ import annotations

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
MODELS: dict[str, str] = {
    "3x3": """(float[1,8,9,7] x, float[16,8,3,3] w, float[16] b) => (float[1,16,9,7] y) {
        c = Conv<pads=[1,1,1,1]>(x, w, b) y = Relu(c) }""",
    "strides": """(float[2,8,11,9] x, float[24,8,3,3] w) => (float[2,24,5,5] y) {
        y = Conv<pads=[0,1,1,1], strides=[2,2]>(x, w) }""",
    "dilated": """(float[1,8,12,12] x, float[16,8,3,3] w) => (float[1,16,8,8] y) {
        c = Conv<dilations=[2,2]>(x, w) y = HardSwish(c) }""",
    "stem": """(float[1,3,17,19] x, float[16,3,7,7] w, float[16] b) => (float[1,16,5,5] y) {
        c = Conv<pads=[3,3,3,3], strides=[2,2]>(x, w, b) r = Relu(c)
        y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(r) }""",
    "long lines": """(float[1,3,17,17] x, float[16,3,7,5] w) => (float[1,16,9,9] y) {
        y = Conv<pads=[3,2,3,2], strides=[2,2]>(x, w) }""",
    "grouped": """(float[1,16,5,6] x, float[24,4,3,3] w) => (float[1,24,5,6] y) {
        y = Conv<pads=[1,1,1,1], group=4>(x, w) }""",
    "depthwise": """(float[1,24,7,9] x, float[24,1,5,5] w, float[24] b) => (float[1,24,4,5] y) {
        c = Conv<pads=[2,2,2,2], strides=[2,2], group=24>(x, w, b) y = HardSwish(c) }""",
    "two for a channel": """(float[1,8,6,5] x, float[16,1,3,3] w) => (float[1,16,6,5] y) {
        y = Conv<pads=[1,1,1,1], group=8>(x, w) }""",
    "one dimension": """(float[2,8,40] x, float[32,8,5] w, float[32] b) => (float[2,32,38] y) {
        c = Conv<pads=[1,1]>(x, w, b) y = Tanh(c) }""",
    "residual": """(float[1,32,5,6] x, float[32,32,3,3] w, float[32,32,1,1] v, float[32] b) => (float[1,32,5,6] y) {
        a = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(a) c = Conv(r, v) s = Add(c, x) y = Relu(s) }""",
    "two branches": """(float[1,8,8,8] x, float[16,8,1,1] w, float[16,8,3,3] v) => (float[1,16,8,8] y) {
        a = Conv(x, w) b = Conv<pads=[1,1,1,1]>(x, v) y = Add(a, b) }""",
    "several readers": """(float[1,8,6,6] x, float[8,8,3,3] w) => (float[1,8,6,6] y, float[1,8,6,6] z) {
        c = Conv<pads=[1,1,1,1]>(x, w) y = Exp(c) z = Neg(c) }""",
    "excited": """(float[1,16,8,8] x, float[16,1,3,3] w, float[8,16,1,1] s, float[16,8,1,1] e, float[8,16,1,1] p) =>
        (float[1,8,8,8] y) {
        d = Conv<pads=[1,1,1,1], group=16>(x, w) h = HardSwish(d) g = GlobalAveragePool(h) a = Conv(g, s) r = Relu(a)
        b = Conv(r, e) f = HardSigmoid(b) m = Mul(h, f) y = Conv(m, p) }""",
    "channels last": """(float[1,16,6,6] x, float[16,1,7,7] w, float[16] g, float[16] b, float[16,64] p, float[64,16] q,
        float[16,1,1] s, float[32,16,2,2] d) => (float[1,32,3,3] y) {
        c = Conv<pads=[3,3,3,3], group=16>(x, w) t = Transpose<perm=[0,2,3,1]>(c) n = LayerNormalization(t, g, b)
        h = MatMul(n, p) a = Gelu<approximate="tanh">(h) k = MatMul(a, q) u = Transpose<perm=[0,3,1,2]>(k)
        z = Mul(u, s) r = Add(z, x) y = Conv<strides=[2,2]>(r, d) }""",
    "pads": """(float[1,8,8,8] x, float[16,8,3,3] w) => (float[1,16,8,9] y) {
        k = Constant<value=int64[8]{0,0,1,1,0,0,1,2}>() p = Pad(x, k) y = Conv(p, w) }""",
    "pooled": """(float[2,16,8,8] x, float[16,16,3,3] w) => (float[2,16,1,1] y, float[2,16,4,4] z) {
        c = Conv<pads=[1,1,1,1]>(x, w) y = GlobalAveragePool(c)
        z = AveragePool<kernel_shape=[2,2], strides=[2,2]>(c) }""",
}
