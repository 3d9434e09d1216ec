"""Models of which no node runs on CUDA: an operand that must be constant is an input, or there is no kernel."""

from __future__ import annotations

__all__ = ["FALLBACKS"]

FALLBACKS = {
    "ReduceSum": "(float[2,3] x, int64[1] s) => (float[a,b] y) { y = ReduceSum(x, s) }",
    "ConstantOfShape": "(int64[1] s) => (float[a] y) { y = ConstantOfShape(s) }",
    "Reshape": "(float[2,3] x, int64[1] s) => (float[a] y) { y = Reshape(x, s) }",
    "TopK": "(float[2,3] x, int64[1] s) => (float[2,a] y, int64[2,a] i) { y, i = TopK(x, s) }",
    "NonZero": "(float[2,3] x) => (int64[2,a] y) { y = NonZero(x) }",
    "SequenceAt": """(float[2,3] x, int64[1] s) => (float[a,b] y)
        { q = SplitToSequence(x) z = Squeeze(s) y = SequenceAt(q, z) }""",
}
