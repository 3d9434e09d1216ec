"""A profile on a timeline: runs, their steps, what happened inside, and what lies in arenas meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.plan.details.program_details import describe_details
from dovetail.plan.manifest import Manifest
from dovetail.provider.devices import ProfileEvent
from dovetail.tools.profiling import LayerProfile
from dovetail.tools.traces.timeline import Timeline

__all__ = ["trace_profile"]

_Facts = dict[str, Any]


def trace_profile(
    profile: LayerProfile, manifest: Manifest, number: int, shapes: Mapping[str, Sequence[int]], trace: Timeline
) -> None:
    """Put a profile on a timeline, each event with its provider, tactic, shapes and bytes.

    Args:
        profile: What was timed.
        manifest: The plan of the engine.
        number: The program that ran.
        shapes: The shapes of its inputs.
        trace: Where to put it.
    """
    details = describe_details(manifest, number, shapes)
    steps = {step["name"]: step for step in _walk(details)}
    facts = {name: _step_facts(step) for name, step in steps.items()}
    for index, (start, end) in enumerate(profile.runs):
        trace.add("profiled runs", f"run {index}", start, end)
    for name, start, end in profile.steps:
        trace.add("steps", name, start, end, facts.get(name))
    threads = _name_threads(profile.inner_events)
    for event in profile.inner_events:
        _add_event(trace, threads[event.thread], event, steps)
    for provider, event in profile.device_events:
        _add_event(trace, f"{provider} stream {event.stream}", event, steps)
    _count_arenas(profile, details, trace)


def _walk(details: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every step, with its tensors as texts, those of bodies after the one that has them."""
    found = []
    for step in details["steps"]:
        values = details["values"]
        tensors = {side: [_tensor_text(values[each]) for each in step[side]] for side in ("inputs", "outputs")}
        found.append({**step, "tensors": tensors})
        for body in step["bodies"]:
            found += _walk(body)
    return found


def _tensor_text(value: Mapping[str, Any]) -> str:
    sizes = "?" if value["sizes"] is None else "x".join(map(str, value["sizes"])) or "scalar"
    layout = "" if value["format"] == "LINEAR" else f" {value['format']}"
    return f"{value['name']}: {value['dtype']} {sizes}{layout}"


def _step_facts(step: Mapping[str, Any]) -> _Facts:
    facts = {
        "provider": step["provider"],
        "op": step["op"],
        "tactic": step["tactic"] or (str(step["tactic_number"]) if step["tactic_number"] else ""),
        "inputs": step["tensors"]["inputs"],
        "outputs": step["tensors"]["outputs"],
        "bytes": step["bytes"],
        "flops": step["flops"],
        "made by": step["made_by"],
        "reason": step["reason"],
    }
    return {name: value for name, value in facts.items() if value not in (None, "", [])}


def _name_threads(events: Sequence[ProfileEvent]) -> dict[int, str]:
    """A track for each thread, numbered in the order they are met."""
    threads = list(dict.fromkeys(event.thread for event in events))
    return {thread: f"nodes of partitions, thread {number}" for number, thread in enumerate(threads)}


def _add_event(trace: Timeline, track: str, event: ProfileEvent, steps: Mapping[str, Mapping[str, Any]]) -> None:
    start_ns = event.start_us * 1e3
    trace.add(track, event.name, start_ns, start_ns + event.duration_us * 1e3, _event_facts(event, steps))


def _event_facts(event: ProfileEvent, steps: Mapping[str, Mapping[str, Any]]) -> _Facts:
    """What the report of a partition knows of one of its parts."""
    facts: _Facts = {"op": event.kind, "step": event.layer}
    step = steps.get(event.layer)
    if step is None:
        return facts
    facts["provider"] = step["provider"]
    names = event.nodes or (event.name,)
    nodes = [node for node in step["nodes"] if node["name"] in names]
    if not nodes:
        return facts
    last = nodes[-1]
    found = {
        "tactic": last["tactic"],
        "layers": list(dict.fromkeys(layer for node in nodes for layer in node["layers"])),
        "output": f"{last['dtype']} {'x'.join(map(str, last['shape']))}" if last["shape"] and last["dtype"] else "",
        "bytes": sum(node["bytes"] or 0 for node in nodes),
        "flops": sum(node["flops"] or 0 for node in nodes),
    }
    return {**facts, **{name: value for name, value in found.items() if value}}


def _count_arenas(profile: LayerProfile, details: Mapping[str, Any], trace: Timeline) -> None:
    """How much of each arena is in use when each step starts, and none after a run."""
    numbers = {step["name"]: number for number, step in enumerate(details["steps"])}
    live = _find_live(details)
    if not any(live.values()):
        return
    for name, start, _ in profile.steps:
        if name in numbers:
            values = {memory: usage[numbers[name]] for memory, usage in live.items()}
            trace.count("arena in use (bytes)", start, values)
    for _, end in profile.runs:
        trace.count("arena in use (bytes)", end, dict.fromkeys(live, 0))


def _find_live(details: Mapping[str, Any]) -> dict[str, list[int]]:
    """Memory -> the bytes in use during each step: values between their first and last step, and workspaces."""
    count = len(details["steps"])
    live = {memory or "host": [0] * (count + 1) for memory in details["arenas"]}
    for value in details["values"]:
        if value["offset"] is not None and value["first_step"] is not None and (value["memory"] or "host") in live:
            for step in range(value["first_step"], min(value["last_step"], count) + 1):
                live[value["memory"] or "host"][step] += value["size_bytes"] or 0
    for number, step in enumerate(details["steps"]):
        memory = next((details["values"][each]["memory"] for each in step["outputs"]), "") or "host"
        if step["workspace_offset"] is not None and memory in live:
            live[memory][number] += step["workspace_bytes"]
    return live
