"""The binary interface of plugin libraries as ctypes sees it: the mirror of ``abi.h`` and ``types.h``."""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Final

__all__ = [
    "ABI_VERSION",
    "MAX_DIMS",
    "AcquireFunction",
    "AllocateFunction",
    "DeallocateFunction",
    "FormatsSink",
    "HasCreatorFunction",
    "IsRunningFunction",
    "LogFunction",
    "NativeCapability",
    "NativeDims",
    "NativeDims32",
    "NativeDynamicDesc",
    "NativeExpr",
    "NativeField",
    "NativeFieldCollection",
    "NativeHost",
    "NativeIdentity",
    "NativeRegistration",
    "NativeRun",
    "NativeShapes",
    "NativeTable",
    "NativeTensorDesc",
    "RegistrationSink",
    "ReleaseFunction",
    "ReportFunction",
    "ShapesSink",
]

ABI_VERSION: Final = 4
MAX_DIMS: Final = 8


class NativeDims(Structure):
    """A shape."""

    _fields_ = (("rank", c_int32), ("sizes", c_int64 * MAX_DIMS))


class NativeTensorDesc(Structure):
    """A tensor at run time."""

    _fields_ = (("dims", NativeDims), ("type", c_int32), ("format", c_int32), ("scale", c_float))


class NativeDynamicDesc(Structure):
    """A tensor while a plan is built."""

    _fields_ = (("desc", NativeTensorDesc), ("min", NativeDims), ("max", NativeDims), ("opt", NativeDims))


class NativeDims32(Structure):
    """A shape in the headers of version 8."""

    _fields_ = (("rank", c_int32), ("sizes", c_int32 * MAX_DIMS))


class NativeRun(Structure):
    """One call of ``enqueue``."""

    _fields_ = (
        ("runtime", c_void_p),
        ("input_desc", POINTER(NativeTensorDesc)),
        ("output_desc", POINTER(NativeTensorDesc)),
        ("num_inputs", c_int32),
        ("num_outputs", c_int32),
        ("inputs", POINTER(c_void_p)),
        ("outputs", POINTER(c_void_p)),
        ("workspace", c_void_p),
        ("stream", c_void_p),
        ("status", c_int32),
    )


class NativeField(Structure):
    """A named value."""

    _fields_ = (("name", c_char_p), ("data", c_void_p), ("type", c_int32), ("length", c_int32))


class NativeFieldCollection(Structure):
    """Named values."""

    _fields_ = (("count", c_int32), ("fields", POINTER(NativeField)))


class NativeRegistration(Structure):
    """A creator that the library registered by itself."""

    _fields_ = (
        ("creator", c_void_p),
        ("name", c_char_p),
        ("version", c_char_p),
        ("namespace", c_char_p),
        ("is_safe", c_int32),
        ("scope", c_int32),
    )


class NativeIdentity(Structure):
    """What a creator or a plugin is called."""

    _fields_ = (("name", c_char_p), ("version", c_char_p), ("namespace", c_char_p))


class NativeCapability(Structure):
    """An object and the interface that it implements."""

    _fields_ = (("object", c_void_p), ("kind", c_char_p), ("major", c_int32), ("minor", c_int32))


class NativeExpr(Structure):
    """One dimension expression; operands are indices of others."""

    _fields_ = (
        ("kind", c_int32),
        ("operation", c_int32),
        ("first", c_int32),
        ("second", c_int32),
        ("value", c_int64),
    )


class NativeShapes(Structure):
    """Shapes: ranks, and the indices of all dimensions one after the other."""

    _fields_ = (("count", c_int32), ("ranks", POINTER(c_int32)), ("dims", POINTER(c_int32)))


LogFunction: Final = CFUNCTYPE(None, c_int64, c_int32, c_char_p)
AcquireFunction: Final = CFUNCTYPE(c_void_p, c_int64, c_char_p, c_void_p)
ReleaseFunction: Final = CFUNCTYPE(c_int32, c_int64, c_char_p)
AllocateFunction: Final = CFUNCTYPE(c_void_p, c_int64, c_uint64, c_uint64, c_uint32)
DeallocateFunction: Final = CFUNCTYPE(c_int32, c_int64, c_void_p)
ReportFunction: Final = CFUNCTYPE(c_int32, c_int64, c_int32, c_char_p)
HasCreatorFunction: Final = CFUNCTYPE(c_int32, c_char_p, c_char_p, c_char_p, c_int32)
IsRunningFunction: Final = CFUNCTYPE(c_int)
RegistrationSink: Final = CFUNCTYPE(None, c_void_p, POINTER(NativeRegistration))
FormatsSink: Final = CFUNCTYPE(None, c_int64, POINTER(c_int32), POINTER(c_int32), c_int32)
ShapesSink: Final = CFUNCTYPE(None, c_int64, POINTER(NativeExpr), c_int32, POINTER(NativeShapes))


class NativeHost(Structure):
    """The functions that Dovetail offers to a library."""

    _fields_ = (
        ("version", c_uint32),
        ("size", c_uint32),
        ("log", LogFunction),
        ("acquire_resource", AcquireFunction),
        ("release_resource", ReleaseFunction),
        ("allocate", AllocateFunction),
        ("deallocate", DeallocateFunction),
        ("report_error", ReportFunction),
        ("has_creator", HasCreatorFunction),
        ("is_running", IsRunningFunction),
    )


_int32_out: Final = POINTER(c_int32)
_handle_out: Final = POINTER(c_void_p)
_text_out: Final = POINTER(c_char_p)
_identity: Final = CFUNCTYPE(c_int32, c_void_p, POINTER(NativeIdentity))
_number: Final = CFUNCTYPE(c_int32, c_void_p, _int32_out)
_text: Final = CFUNCTYPE(c_int32, c_void_p, _text_out)
_make: Final = CFUNCTYPE(c_int32, c_void_p, _handle_out)
_delete: Final = CFUNCTYPE(c_int32, c_void_p)
_descs: Final = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_int32, c_void_p, c_int32, _int32_out)


class NativeTable(Structure):
    """The functions of a library, in the order of ``dovetail_plugin_table``."""

    _fields_ = (
        ("version", c_uint32),
        ("size", c_uint32),
        ("size_of_tensor_desc", c_uint32),
        ("size_of_dynamic_desc", c_uint32),
        ("size_of_field", c_uint32),
        ("size_of_dims", c_uint32),
        ("last_error", CFUNCTYPE(c_char_p)),
        ("last_method", CFUNCTYPE(c_char_p)),
        ("attach", CFUNCTYPE(c_int32, POINTER(NativeHost), c_int64)),
        ("host_calls", CFUNCTYPE(c_int32)),
        ("registrations_version", CFUNCTYPE(c_uint64)),
        ("registrations", CFUNCTYPE(c_int32, RegistrationSink, c_void_p)),
        ("registration_problem", CFUNCTYPE(c_int32)),
        ("set_scope", CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int32, c_int32)),
        ("remove_registrations", CFUNCTYPE(c_int32, c_void_p, c_int32, _int32_out)),
        ("set_loading", CFUNCTYPE(c_int32, c_int32)),
        ("call_set_logger_finder", _delete),
        ("call_initialise", _number),
        ("call_get_creators", CFUNCTYPE(c_int32, c_void_p, POINTER(_handle_out), _int32_out)),
        ("creator_interface", CFUNCTYPE(c_int32, c_void_p, POINTER(NativeCapability))),
        ("creator_adapt", _make),
        ("creator_identity", _identity),
        ("creator_fields", _make),
        ("creator_create", CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_int32, _handle_out)),
        ("plugin_delete", _delete),
        ("plugin_clone", _make),
        ("plugin_capability", CFUNCTYPE(c_int32, c_void_p, c_int32, POINTER(NativeCapability))),
        ("core_identity", _identity),
        ("build_num_outputs", _number),
        (
            "build_output_types",
            CFUNCTYPE(c_int32, c_void_p, _int32_out, c_int32, _int32_out, _int32_out, c_int32, _int32_out),
        ),
        (
            "build_output_shapes",
            CFUNCTYPE(
                c_int32,
                c_void_p,
                POINTER(NativeExpr),
                c_int32,
                POINTER(NativeShapes),
                POINTER(NativeShapes),
                c_int32,
                ShapesSink,
                c_int64,
                _int32_out,
            ),
        ),
        ("build_supports", CFUNCTYPE(c_int32, c_void_p, c_int32, c_void_p, c_int32, c_int32, _int32_out)),
        (
            "build_combinations",
            CFUNCTYPE(c_int32, c_void_p, c_void_p, c_int32, c_int32, FormatsSink, c_int64, _int32_out),
        ),
        ("build_configure", _descs),
        (
            "build_workspace",
            CFUNCTYPE(c_int32, c_void_p, c_void_p, c_int32, c_void_p, c_int32, POINTER(c_uint64)),
        ),
        ("build_nb_tactics", _number),
        ("build_tactics", CFUNCTYPE(c_int32, c_void_p, _int32_out, c_int32, _int32_out)),
        ("build_format_limit", _number),
        ("build_timing_cache_id", _text),
        ("build_metadata", _text),
        ("build_aliased_input", CFUNCTYPE(c_int32, c_void_p, c_int32, _int32_out)),
        ("runtime_set_tactic", CFUNCTYPE(c_int32, c_void_p, c_int32, _int32_out)),
        ("runtime_shape_change", _descs),
        ("runtime_enqueue", CFUNCTYPE(c_int32, c_void_p)),
        ("runtime_attach", CFUNCTYPE(c_int32, c_void_p, c_void_p, _handle_out)),
        ("runtime_fields", _make),
        ("context_create", CFUNCTYPE(c_int32, c_int64, _handle_out)),
        ("context_delete", _delete),
        ("resource_clone", _make),
        ("resource_release", _number),
        ("resource_delete", _delete),
    )
