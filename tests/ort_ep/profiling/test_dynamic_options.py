"""What may change while a session lives."""

from __future__ import annotations

from collections.abc import Callable

import onnxruntime as ort
import pytest

from tests.ort_ep.profiling.test_trace import events, layers
from tests.support import ort_ep
from tests.support.ort_ep_models import feeds, plain_model

pytestmark = [
    pytest.mark.versions,
    pytest.mark.skipif(
        not hasattr(ort.InferenceSession, "set_ep_dynamic_options"),
        reason="this ONNX Runtime has no such call in Python",
    ),
]
Session = Callable[..., ort.InferenceSession]


@pytest.mark.skipif(ort_ep.RUNTIME < (1, 25), reason="plugins take part in profiles from 1.25 on")
@pytest.mark.parametrize("key", ["profile_layers", "ep.dovetailexecutionprovider.profile_layers"])
def test_layers_can_be_left_out_of_a_trace(dovetail_session: Session, tmp_path, key: str) -> None:
    options = ort_ep.session_options(fallback=False)
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = dovetail_session(plain_model(), options=options, claim="all")
    session.run(None, feeds())
    session.set_ep_dynamic_options({key: "0"})
    session.run(None, feeds())
    session.set_ep_dynamic_options({key: "1"})
    session.run(None, feeds())
    assert len(layers(events(session))) == 2 * 3


@pytest.mark.parametrize("value", ["Default", "Efficient"])
def test_the_kind_of_work_is_taken(dovetail_session: Session, value: str) -> None:
    session = dovetail_session(plain_model(), claim="all")
    session.set_ep_dynamic_options({"ep.dynamic.workload_type": value})
    session.run(None, feeds())


BAD = [
    ({"claim": "all"}, "option claim is fixed when the session is made"),
    ({"provider.cpu.x": "1"}, "option provider.cpu.x is fixed when the session is made"),
    ({"colour": "red"}, "unknown option colour"),
    ({"profile_layers": "perhaps"}, "expected 0 or 1, got perhaps"),
    ({"ep.dynamic.workload_type": "Lazy"}, "expected Default or Efficient, got Lazy"),
]


@pytest.mark.parametrize(("options", "text"), BAD)
def test_anything_else_is_an_error(dovetail_session: Session, options: dict[str, str], text: str) -> None:
    session = dovetail_session(plain_model(), claim="all")
    with pytest.raises(Exception, match=text):
        session.set_ep_dynamic_options(options)
    session.run(None, feeds())
