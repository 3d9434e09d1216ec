"""Features, encoders and maps of ai.onnx.ml against ONNX Runtime, and what it does not have against the text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from dovetail.errors import InputError
from tests.support.ml_node import check_ml, run_ml

X = (np.random.default_rng(0).normal(size=(5, 4)) * 3).astype(np.float32)
DTYPES = (np.float32, np.float64, np.int64, np.int32)
WORDS = np.array([["a", "b"], ["zz", "a"]], dtype=object)


@pytest.mark.parametrize("dtype", DTYPES)
def test_features_are_as_in_onnxruntime(dtype: Any) -> None:
    x = X.astype(dtype)
    picked = np.array([0, 2, 2], dtype=np.int64)
    check_ml("ArrayFeatureExtractor", [x, picked], {})
    check_ml("ArrayFeatureExtractor", [x[0], picked], {})
    check_ml("Scaler", [x], {"offset": [0.1, 0.2, 0.3, 0.4], "scale": [2.0, 3.0, 4.0, 5.0]})
    check_ml("Scaler", [x], {"offset": [0.1], "scale": [2.0]})
    check_ml("FeatureVectorizer", [x, x[:, :2].copy()], {"inputdimensions": [4, 2]})
    check_ml("FeatureVectorizer", [x, x[:, :2].copy()], {"inputdimensions": [3, 5]})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer_is_as_in_onnxruntime(dtype: Any, norm: str) -> None:
    x = X.astype(dtype)
    x[1] = 0
    check_ml("Normalizer", [x], {"norm": norm})
    check_ml("Normalizer", [x[0]], {"norm": norm})


@pytest.mark.parametrize("dtype", DTYPES)
def test_binarizer_keeps_the_type(dtype: Any) -> None:
    (y,) = run_ml("Binarizer", [X.astype(dtype)], {"threshold": 0.5})
    assert y.dtype == dtype
    assert y.tolist() == (X.astype(dtype) > 0.5).astype(dtype).tolist()


def test_imputer() -> None:
    holes = X.copy()
    holes[0, 1] = np.nan
    check_ml("Imputer", [holes], {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")})
    check_ml("Imputer", [X], {"imputed_value_floats": [1.0], "replaced_value_float": float(X[0, 0])})
    check_ml("Imputer", [X.astype(np.int64)], {"imputed_value_int64s": [7], "replaced_value_int64": 1})
    with pytest.raises(InputError, match="wrong length"):
        run_ml("Imputer", [X], {"imputed_value_floats": [1.0, 2.0]})


def test_one_hot_encoder() -> None:
    check_ml("OneHotEncoder", [X], {"cats_int64s": [-1, 0, 1, 2]})
    check_ml("OneHotEncoder", [WORDS], {"cats_strings": ["a", "b"]})
    with pytest.raises(InputError, match="no known category"):
        run_ml("OneHotEncoder", [WORDS], {"cats_strings": ["a", "b"], "zeros": 0})
    with pytest.raises(InputError, match="another type"):
        run_ml("OneHotEncoder", [WORDS], {"cats_int64s": [1]})


def test_label_encoders_are_as_in_onnxruntime() -> None:
    places = np.array([0, 2, 5, -1], dtype=np.int64)
    check_ml("LabelEncoder", [WORDS], {"classes_strings": ["a", "b"], "default_int64": -5}, opset=1)
    check_ml("LabelEncoder", [places], {"classes_strings": ["a", "b", "c"], "default_string": "q"}, opset=1)
    check_ml("LabelEncoder", [WORDS], {"keys_strings": ["a", "b"], "values_int64s": [3, 4]}, opset=2)
    floats = {"keys_int64s": [0, 2], "values_floats": [0.5, 0.25], "default_float": 9.0}
    check_ml("LabelEncoder", [places], floats, opset=2)
    check_ml("CategoryMapper", [WORDS], {"cats_int64s": [7, 8], "cats_strings": ["a", "b"], "default_int64": -4})
    check_ml("CategoryMapper", [places], {"cats_int64s": [0, 2], "cats_strings": ["a", "b"], "default_string": "w"})


def test_label_encoder_finds_nan_and_takes_tensors() -> None:
    x = np.array([1.5, np.nan, 2.0], dtype=np.float32)
    (y,) = run_ml("LabelEncoder", [x], {"keys_floats": [1.5, float("nan")], "values_strings": ["p", "q"]}, opset=2)
    assert y.tolist() == ["p", "q", "_Unused"]
    tensors = {
        "keys_tensor": helper.make_tensor("k", TensorProto.DOUBLE, [2], [1.5, 2.5]),
        "values_tensor": helper.make_tensor("v", TensorProto.INT16, [2], [7, 8]),
    }
    (y,) = run_ml("LabelEncoder", [np.array([[2.5], [0.1]])], tensors, opset=4)
    assert y.dtype == np.int16
    assert y.tolist() == [[8], [-1]]


def test_label_encoder_takes_the_last_of_equal_keys() -> None:
    (y,) = run_ml("LabelEncoder", [WORDS], {"keys_strings": ["a", "a"], "values_int64s": [1, 2]}, opset=4)
    assert y.tolist() == [[2, -1], [-1, 2]]


def test_label_encoder_refuses_keys_of_another_type() -> None:
    with pytest.raises(InputError, match="another type"):
        run_ml("LabelEncoder", [X], {"keys_strings": ["a"], "values_int64s": [1]}, opset=4)
    with pytest.raises(InputError, match="differ in length"):
        run_ml("LabelEncoder", [WORDS], {"keys_strings": ["a"], "values_int64s": [1, 2]}, opset=4)
