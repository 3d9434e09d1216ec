// Types of the plugin interface: enumerations, shapes, tensor descriptions and fields.
// Their layout is part of the binary interface of abi.h.
#pragma once

#include "../NvInferVersion.h"

#include <cstddef>
#include <cstdint>

#if defined(__has_include)
#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#else
#include "../no_cuda/cuda_runtime_api.h"
#endif
#else
#include <cuda_runtime_api.h>
#endif

#define DOVETAIL_EXPORT __attribute__((visibility("default")))
#define DOVETAIL_PRIVATE __attribute__((visibility("hidden")))
#ifndef TENSORRTAPI
#define TENSORRTAPI DOVETAIL_EXPORT
#endif
// Nothing is marked as deprecated here: the older interfaces are meant to be used.
#define TRT_DEPRECATED
#define TRT_DEPRECATED_ENUM
#define TRT_DEPRECATED_API TENSORRTAPI

namespace nvinfer1
{

// Networks are built in Python or on the command line: these classes have names only. They are outside of the inline
// namespace, because sources declare them too.
class IBuilder;
class IBuilderConfig;
class ICudaEngine;
class IExecutionContext;
class IHostMemory;
class ILayer;
class INetworkDefinition;
class IOptimizationProfile;
class IPluginV2Layer;
class IPluginV3Layer;
class IProfiler;
class IRuntime;
class ITensor;

inline namespace dovetail_v1
{

using char_t = char;
using AsciiChar = char_t;

enum class DataType : int32_t
{
    kFLOAT = 0,
    kHALF = 1,
    kINT8 = 2,
    kINT32 = 3,
    kBOOL = 4,
    kUINT8 = 5,
    kFP8 = 6,
    kBF16 = 7,
    kINT64 = 8,
    kINT4 = 9,
    kFP4 = 10,
    kE8M0 = 11,
};

enum class TensorFormat : int32_t
{
    kLINEAR = 0,
    kCHW2 = 1,
    kHWC8 = 2,
    kCHW4 = 3,
    kCHW16 = 4,
    kCHW32 = 5,
    kDHWC8 = 6,
    kCDHW32 = 7,
    kHWC = 8,
    kDLA_LINEAR = 9,
    kDLA_HWC4 = 10,
    kHWC16 = 11,
    kDHWC = 12,
#if NV_TENSORRT_MAJOR < 10
    // Names of before version 8.
    kNCHW = kLINEAR,
    kNC2HW2 = kCHW2,
    kNHWC8 = kHWC8,
#endif
};

using PluginFormat = TensorFormat;
#if NV_TENSORRT_MAJOR < 10
using PluginFormatType = TensorFormat;
#endif

// What an engine is made for; plugins ask for the registry of one.
enum class EngineCapability : int32_t
{
    kSTANDARD = 0,
    kDEFAULT = kSTANDARD,
    kSAFETY = 1,
    kDLA_STANDALONE = 2,
};

enum class PluginFieldType : int32_t
{
    kFLOAT16 = 0,
    kFLOAT32 = 1,
    kFLOAT64 = 2,
    kINT8 = 3,
    kINT16 = 4,
    kINT32 = 5,
    kCHAR = 6,
    kDIMS = 7,
    kUNKNOWN = 8,
    kBF16 = 9,
    kINT64 = 10,
    kFP8 = 11,
    kINT4 = 12,
    kFP4 = 13,
};

enum class TensorRTPhase : int32_t
{
    kBUILD = 0,
    kRUNTIME = 1,
};

enum class PluginCapabilityType : int32_t
{
    kCORE = 0,
    kBUILD = 1,
    kRUNTIME = 2,
};

enum class APILanguage : int32_t
{
    kCPP = 0,
    kPYTHON = 1,
};

enum class DimensionOperation : int32_t
{
    kSUM = 0,
    kPROD = 1,
    kMAX = 2,
    kMIN = 3,
    kSUB = 4,
    kEQUAL = 5,
    kLESS = 6,
    kFLOOR_DIV = 7,
    kCEIL_DIV = 8,
};

// A shape: -1 stands for a size that is not known yet.
class Dims64
{
public:
    static constexpr int32_t MAX_DIMS{8};
    int32_t nbDims;
    int64_t d[MAX_DIMS];
};

// A shape of before version 10.
class Dims32
{
public:
    static constexpr int32_t MAX_DIMS{8};
    int32_t nbDims;
    int32_t d[MAX_DIMS];
};

#if NV_TENSORRT_MAJOR >= 10
using Dims = Dims64;
#else
using Dims = Dims32;
#endif
using DimsSize = decltype(Dims{}.nbDims + Dims{}.d[0]);

class Dims2 : public Dims
{
public:
    Dims2() : Dims2{0, 0} {}
    Dims2(DimsSize d0, DimsSize d1) : Dims{2, {d0, d1}} {}
};

class DimsHW : public Dims2
{
public:
    using Dims2::Dims2;
    DimsSize& h() { return d[0]; }
    DimsSize h() const { return d[0]; }
    DimsSize& w() { return d[1]; }
    DimsSize w() const { return d[1]; }
};

class Dims3 : public Dims
{
public:
    Dims3() : Dims3{0, 0, 0} {}
    Dims3(DimsSize d0, DimsSize d1, DimsSize d2) : Dims{3, {d0, d1, d2}} {}
};

#if NV_TENSORRT_MAJOR < 10
class DimsCHW : public Dims3
{
public:
    using Dims3::Dims3;
    DimsSize& c() { return d[0]; }
    DimsSize c() const { return d[0]; }
    DimsSize& h() { return d[1]; }
    DimsSize h() const { return d[1]; }
    DimsSize& w() { return d[2]; }
    DimsSize w() const { return d[2]; }
};
#endif

class Dims4 : public Dims
{
public:
    Dims4() : Dims4{0, 0, 0, 0} {}
    Dims4(DimsSize d0, DimsSize d1, DimsSize d2, DimsSize d3) : Dims{4, {d0, d1, d2, d3}} {}
};

// An order of dimensions.
struct Permutation
{
    int32_t order[Dims::MAX_DIMS];
};

class Weights
{
public:
    DataType type;
    void const* values;
    int64_t count;
};

// One tensor at run time; the scale is -1 for types other than INT8.
struct PluginTensorDesc
{
    Dims dims;
    DataType type;
    TensorFormat format;
    float scale;
};

// One tensor while a plan is built: the shape with wildcards, and its bounds.
struct DynamicPluginTensorDesc
{
    PluginTensorDesc desc;
    Dims min;
    Dims max;
    Dims opt;
};

// A named value; the length counts entries, and bytes where the type is kUNKNOWN.
class PluginField
{
public:
    AsciiChar const* name;
    void const* data;
    PluginFieldType type;
    int32_t length;

    PluginField(AsciiChar const* const name_ = nullptr, void const* const data_ = nullptr,
        PluginFieldType const type_ = PluginFieldType::kUNKNOWN, int32_t const length_ = 0) noexcept
        : name(name_)
        , data(data_)
        , type(type_)
        , length(length_)
    {
    }
};

struct PluginFieldCollection
{
    int32_t nbFields{};
    PluginField const* fields{};
};

// How many members an enumeration has.
template <typename T>
constexpr int32_t EnumMax() noexcept;
template <>
constexpr int32_t EnumMax<DataType>() noexcept
{
    return 12;
}
template <>
constexpr int32_t EnumMax<TensorFormat>() noexcept
{
    return 13;
}
template <>
constexpr int32_t EnumMax<DimensionOperation>() noexcept
{
    return 9;
}

struct InterfaceInfo
{
    AsciiChar const* kind;
    int32_t major;
    int32_t minor;
};

} // namespace dovetail_v1
} // namespace nvinfer1
