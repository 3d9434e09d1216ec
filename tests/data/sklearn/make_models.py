"""Writes the tiny models beside it: pipelines of scikit-learn as skl2onnx exports them, and what they predict.

Classifiers end in maps from label to probability, which is how users get them. Run it in an environment with
`scikit-learn==1.9.1`, `skl2onnx==1.20.0`, `onnx==1.23.2` and `pandas==3.1.1`:

    python make_models.py

`columns.onnx` has string and number columns and string labels, `entries.onnx` takes a map, `words.onnx` takes text.
`predictions.json` has for each the inputs, the labels and the probabilities, from scikit-learn itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import DictionaryType, FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

FOLDER = Path(__file__).parent
OPSETS = {"": 18, "ai.onnx.ml": 1}
SHOWN = 5


def write(name: str, model: Pipeline, types: list[tuple[str, Any]], given: Any, inputs: dict[str, Any]) -> Any:
    onx = convert_sklearn(model, name, initial_types=types, target_opset=OPSETS)
    (FOLDER / f"{name}.onnx").write_bytes(onx.SerializeToString())
    probabilities = model.predict_proba(given).tolist()
    labels = [label.item() if isinstance(label, np.generic) else label for label in model.classes_]
    return {
        "inputs": inputs,
        "labels": model.predict(given).tolist(),
        "probabilities": [list(zip(labels, row, strict=True)) for row in probabilities],
    }


def make_columns() -> Any:
    count = np.arange(60)
    table = pd.DataFrame(
        {
            "city": np.array(["rome", "oslo", "lima"])[count % 3],
            "age": np.linspace(1, 80, 60, dtype=np.float32),
            "pay": np.cos(count).astype(np.float32),
        }
    )
    target = np.where((table.age > 40) ^ (table.city == "oslo"), "yes", "no")
    encoder = OneHotEncoder(handle_unknown="ignore")
    columns = ColumnTransformer([("words", encoder, ["city"]), ("numbers", StandardScaler(), ["age", "pay"])])
    model = make_pipeline(columns, LogisticRegression()).fit(table, target)
    types = [("city", StringTensorType([None, 1]))]
    types += [(name, FloatTensorType([None, 1])) for name in ("age", "pay")]
    shown = table.head(SHOWN).replace({"lima": "bern"})
    inputs = {name: [[item] for item in shown[name].tolist()] for name in shown}
    return write("columns", model, types, shown, inputs)


def make_entries() -> Any:
    rows = [{"age": float(i), "size": 1.0 + i % 2, **({"far": 1.0} if i % 3 else {})} for i in range(20)]
    vectorizer = DictVectorizer(sparse=False, dtype=np.float32)
    model = make_pipeline(vectorizer, LogisticRegression()).fit(rows, [i // 5 for i in range(20)])
    types = [("entries", DictionaryType(StringTensorType([1]), FloatTensorType([1])))]
    given = {"age": 7.5, "far": 1.0, "unknown": 3.0}
    return write("entries", model, types, [given], {"entries": given})


def make_words() -> Any:
    texts = ["a quick brown fox", "the lazy dog sleeps", "quick quick dog", "brown dog and fox", "sleeps the fox"] * 4
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression()).fit(texts, [1, 0, 1, 1, 0] * 4)
    given = ["the quick Fox", "lazy lazy dog", "", "unknown words brown"]
    inputs = {"text": [[text] for text in given]}
    return write("words", model, [("text", StringTensorType([None, 1]))], given, inputs)


if __name__ == "__main__":
    predictions = {"columns": make_columns(), "entries": make_entries(), "words": make_words()}
    (FOLDER / "predictions.json").write_text(json.dumps(predictions, indent=1) + "\n")
