"""Documents of requests: those that come again are read once, and only those without values."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dovetail_serve.errors import RequestError
from dovetail_serve.http.document import DocumentReader
from dovetail_serve.http.request import RequestReader
from dovetail_serve.options import Limits


def raw_document(**more: Any) -> bytes:
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    return json.dumps({"inputs": [entry], **more}).encode()


def read(reader: RequestReader, document: bytes, values: list[float]) -> Any:
    headers = {b"inference-header-content-length": str(len(document)).encode()}
    return reader.read(headers, document + np.array(values, np.float32).tobytes(), "m", "")


def test_a_document_that_comes_again_is_read_once_with_other_tensors() -> None:
    reader = RequestReader(Limits())
    first, second = (read(reader, raw_document(), values) for values in ([1.0, 2.0], [3.0, 4.0]))
    assert first.request.inputs["x"].tolist() == [[1.0, 2.0]]
    assert second.request.inputs["x"].tolist() == [[3.0, 4.0]]
    reader_of_documents = DocumentReader(Limits())
    assert reader_of_documents.read(raw_document(), has_tensors=True) is reader_of_documents.read(
        raw_document(), has_tensors=True
    )


def test_only_so_many_are_kept() -> None:
    reader = DocumentReader(Limits())
    for number in range(1000):
        assert reader.read(raw_document(id=str(number)), has_tensors=True).id == str(number)
    assert len(reader._kept) <= 256


def test_what_is_wrong_is_wrong_each_time() -> None:
    reader = RequestReader(Limits())
    for _ in range(2):
        with pytest.raises(RequestError, match="ends after the body"):
            read(reader, raw_document(), [1.0])
        with pytest.raises(RequestError, match="the datatype is not known"):
            read(reader, raw_document().replace(b"FP32", b"FP33"), [1.0, 2.0])


def test_a_flag_is_true_or_false() -> None:
    outputs = [{"name": "y", "parameters": {"binary_data": "yes"}}]
    with pytest.raises(RequestError, match=r"output 'y', parameter 'binary_data'.*true or false"):
        read(RequestReader(Limits()), raw_document(outputs=outputs), [1.0, 2.0])
    with pytest.raises(RequestError, match="binary_data_output"):
        read(RequestReader(Limits()), raw_document(parameters={"binary_data_output": 1}), [1.0, 2.0])
