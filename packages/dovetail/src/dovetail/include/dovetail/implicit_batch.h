// Plugins that never see the batch: IPluginV2, IPluginV2Ext and IPluginV2IOExt.
//
// Networks have the batch as the first dimension of each tensor. These plugins are told shapes without it, declare
// shapes without it, and are run with its size as a number; all other dimensions are fixed when the network is built.
#pragma once

#include "dialects_v2.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>

namespace dovetail
{
namespace detail
{

inline Dims dropBatch(Dims const& dims) noexcept
{
    Dims rest{std::max(dims.nbDims - 1, 0), {}};
    std::copy_n(dims.d + 1, rest.nbDims, rest.d);
    return rest;
}

inline std::vector<Dims> dropBatches(DynamicPluginTensorDesc const* descs, int32_t count)
{
    std::vector<Dims> dims;
    for (int32_t i = 0; i < count; ++i)
    {
        dims.push_back(dropBatch(descs[i].max));
    }
    return dims;
}

inline bool isFloat(DataType type) noexcept
{
    switch (type)
    {
    case DataType::kFLOAT:
    case DataType::kHALF:
    case DataType::kFP8:
    case DataType::kBF16:
    case DataType::kFP4:
    case DataType::kE8M0: return true;
    default: return false;
    }
}

// The formats that supportsFormat was ever asked for.
inline bool isOldFormat(TensorFormat format) noexcept
{
    return format == TensorFormat::kLINEAR || format == TensorFormat::kCHW2 || format == TensorFormat::kHWC8;
}

// What the three interfaces have in common.
class DOVETAIL_PRIVATE ImplicitBatchDialect : public Dialect
{
public:
    explicit ImplicitBatchDialect(IPluginV2& plugin) noexcept
        : mPlugin{plugin}
    {
    }

    IPluginV2& plugin() const noexcept override { return mPlugin; }
    void attach(IGpuAllocator*) override {}
    void detach() override {}
    bool asksWorkspaceInitialized() const noexcept override { return true; }

    // The batch of the first input, then what the plugin says.
    void outputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs* outputs, int32_t nbOutputs,
        IExprBuilder& builder) override
    {
        std::vector<Dims> shapes;
        for (int32_t i = 0; i < nbInputs; ++i)
        {
            shapes.push_back(fixedShape(inputs[i], i));
        }
        auto const* batch = nbInputs ? inputs[0].d[0] : builder.constant(1);
        for (int32_t i = 0; i < nbOutputs; ++i)
        {
            Dims const dims = named("getOutputDimensions",
                [&] { return mPlugin.getOutputDimensions(i, shapes.data(), nbInputs); });
            outputs[i] = withBatch(batch, dims, i, builder);
        }
    }

    size_t workspaceSize(DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const*,
        int32_t) const override
    {
        return mPlugin.getWorkspaceSize(largestBatch(in, nbInputs));
    }

    // There is no callback for a change of the batch: it is checked, and kept for the runs.
    void shapeChange(PluginTensorDesc const* in, int32_t nbInputs, PluginTensorDesc const*, int32_t) override
    {
        mNbInputs = nbInputs;
        batchOf(in);
    }

    int32_t run(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void* workspace, cudaStream_t stream) override
    {
        return mPlugin.enqueue(batchOf(inputDesc), inputs, outputs, workspace, stream);
    }

protected:
    static int32_t largestBatch(DynamicPluginTensorDesc const* in, int32_t nbInputs)
    {
        int64_t batch = nbInputs ? -1 : 1;
        for (int32_t i = 0; i < nbInputs; ++i)
        {
            batch = std::max<int64_t>(batch, in[i].max.nbDims > 0 ? in[i].max.d[0] : -1);
        }
        if (batch < 0)
        {
            throw std::invalid_argument(
                "the largest batch is not known: build with an optimization profile, or with fixed shapes");
        }
        return asBatch(batch);
    }

private:
    // The older interfaces have 32 bits for the batch.
    static int32_t asBatch(int64_t batch)
    {
        if (batch > std::numeric_limits<int32_t>::max())
        {
            throw std::invalid_argument("the batch is larger than 2147483647, the largest of a V2 plugin");
        }
        return static_cast<int32_t>(batch);
    }

    static Dims fixedShape(DimsExprs const& dims, int32_t input)
    {
        if (dims.nbDims < 1)
        {
            refuse("input %d has %d dimensions, and none could be the batch", input, dims.nbDims);
        }
        Dims shape{dims.nbDims - 1, {}};
        for (int32_t axis = 1; axis < dims.nbDims; ++axis)
        {
            if (!dims.d[axis]->isConstant())
            {
                refuse("input %d, dimension %d varies: this interface needs fixed dimensions after the batch", input,
                    axis);
            }
            int64_t const size = dims.d[axis]->getConstantValue();
            shape.d[axis - 1] = static_cast<DimsSize>(size);
            if (shape.d[axis - 1] != size)
            {
                refuse("input %d, dimension %d is larger than the headers of version 8 can hold", input, axis);
            }
        }
        return shape;
    }

    static DimsExprs withBatch(IDimensionExpr const* batch, Dims const& dims, int32_t output, IExprBuilder& builder)
    {
        if (dims.nbDims < 0 || dims.nbDims >= Dims::MAX_DIMS)
        {
            refuse("output %d was given no rank from 0 to 7 without the batch: nbDims is %d", output, dims.nbDims);
        }
        DimsExprs shape{dims.nbDims + 1, {batch}};
        for (int32_t i = 0; i < dims.nbDims; ++i)
        {
            shape.d[i + 1] = builder.constant(dims.d[i]);
        }
        return shape;
    }

    int32_t batchOf(PluginTensorDesc const* in) const
    {
        for (int32_t i = 1; i < mNbInputs; ++i)
        {
            if (in[i].dims.d[0] != in[0].dims.d[0])
            {
                refuse("input %d has another batch than input %d", i, 0);
            }
        }
        return mNbInputs ? asBatch(in[0].dims.d[0]) : 1;
    }

    IPluginV2& mPlugin;
    int32_t mNbInputs{0};
};

// IPluginV2: the type of the first input for every output.
class DOVETAIL_PRIVATE OneTypeDialect final : public ImplicitBatchDialect
{
public:
    using ImplicitBatchDialect::ImplicitBatchDialect;

    DataType outputType(int32_t, DataType const* inputTypes, int32_t nbInputs) const override
    {
        return nbInputs ? inputTypes[0] : DataType::kFLOAT;
    }

    bool supports(int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) override
    {
        auto const &first = inOut[0].desc, &desc = inOut[pos].desc;
        bool const isSame = desc.type == first.type && desc.format == first.format;
        return isSame && isOldFormat(desc.format)
            && named("supportsFormat", [&] { return plugin().supportsFormat(desc.type, desc.format); });
    }

    void configure(DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* out,
        int32_t nbOutputs) override
    {
        auto const& first = (nbInputs ? in : out)[0].desc;
        auto const inputs = dropBatches(in, nbInputs), outputs = dropBatches(out, nbOutputs);
        int32_t const batch = largestBatch(in, nbInputs);
        named("configureWithFormat", [&] {
            plugin().configureWithFormat(
                inputs.data(), nbInputs, outputs.data(), nbOutputs, first.type, first.format, batch);
        });
    }
};

// What IPluginV2Ext adds.
template <typename P>
class DOVETAIL_PRIVATE ExtendedDialect : public ImplicitBatchDialect
{
public:
    explicit ExtendedDialect(P& plugin) noexcept
        : ImplicitBatchDialect{plugin}
        , mPlugin{plugin}
    {
    }

    void attach(IGpuAllocator* allocator) override
    {
        named("attachToContext", [&] { mPlugin.attachToContext(nullptr, nullptr, allocator); });
    }
    void detach() override { mPlugin.detachFromContext(); }

    DataType outputType(int32_t index, DataType const* inputTypes, int32_t nbInputs) const override
    {
        return named("getOutputDataType", [&] { return mPlugin.getOutputDataType(index, inputTypes, nbInputs); });
    }

protected:
    P& mPlugin;
};

// IPluginV2Ext: one format for all floating-point tensors, the others are linear.
class DOVETAIL_PRIVATE ExtDialect final : public ExtendedDialect<IPluginV2Ext>
{
public:
    using ExtendedDialect::ExtendedDialect;

    bool supports(int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) override
    {
        auto const& desc = inOut[pos].desc;
        auto const shared = isFloat(desc.type) ? floatFormat(inOut, pos + 1) : TensorFormat::kLINEAR;
        bool const isShared = desc.format == shared && isOldFormat(desc.format);
        return isShared && named("supportsFormat", [&] { return mPlugin.supportsFormat(desc.type, desc.format); });
    }

    void configure(DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* out,
        int32_t nbOutputs) override
    {
        std::vector<DynamicPluginTensorDesc> all(in, in + nbInputs);
        all.insert(all.end(), out, out + nbOutputs);
        std::vector<DataType> types;
        for (auto const& tensor : all)
        {
            types.push_back(tensor.desc.type);
        }
        auto const isBroadcast = std::make_unique<bool[]>(all.size() + 1);
        mPlugin.configurePlugin(dropBatches(in, nbInputs).data(), nbInputs, dropBatches(out, nbOutputs).data(),
            nbOutputs, types.data(), types.data() + nbInputs, isBroadcast.get(), isBroadcast.get(),
            floatFormat(all.data(), nbInputs + nbOutputs), largestBatch(in, nbInputs));
    }

private:
    static TensorFormat floatFormat(DynamicPluginTensorDesc const* descs, int32_t count) noexcept
    {
        auto const* found
            = std::find_if(descs, descs + count, [](auto const& tensor) { return isFloat(tensor.desc.type); });
        return found == descs + count ? TensorFormat::kLINEAR : found->desc.format;
    }
};

// IPluginV2IOExt: a type and a format of its own for each tensor.
class DOVETAIL_PRIVATE IOExtDialect final : public ExtendedDialect<IPluginV2IOExt>
{
public:
    using ExtendedDialect::ExtendedDialect;

    bool supports(int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs) override
    {
        auto const descs = withoutBatch(inOut, nbInputs + nbOutputs);
        return mPlugin.supportsFormatCombination(pos, descs.data(), nbInputs, nbOutputs);
    }

    void configure(DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* out,
        int32_t nbOutputs) override
    {
        largestBatch(in, nbInputs);
        mPlugin.configurePlugin(
            withoutBatch(in, nbInputs).data(), nbInputs, withoutBatch(out, nbOutputs).data(), nbOutputs);
    }

private:
    static std::vector<PluginTensorDesc> withoutBatch(DynamicPluginTensorDesc const* descs, int32_t count)
    {
        std::vector<PluginTensorDesc> rest;
        for (int32_t i = 0; i < count; ++i)
        {
            rest.push_back(descs[i].desc);
            rest.back().dims = dropBatch(descs[i].max);
        }
        return rest;
    }
};

// The dialect of a plugin, by the interface that its version names.
inline std::unique_ptr<Dialect> chooseDialect(IPluginV2& plugin)
{
    int32_t const version = named("getTensorRTVersion", [&] { return plugin.getTensorRTVersion(); });
    switch (static_cast<PluginVersion>(static_cast<uint32_t>(version) >> 24))
    {
    case PluginVersion::kV2: return std::make_unique<OneTypeDialect>(plugin);
    case PluginVersion::kV2_EXT: return std::make_unique<ExtDialect>(static_cast<IPluginV2Ext&>(plugin));
    case PluginVersion::kV2_IOEXT: return std::make_unique<IOExtDialect>(static_cast<IPluginV2IOExt&>(plugin));
    case PluginVersion::kV2_DYNAMICEXT:
        return std::make_unique<DynamicDialect>(static_cast<IPluginV2DynamicExt&>(plugin));
    }
    throw std::invalid_argument("getTensorRTVersion names no interface of a V2 plugin");
}

} // namespace detail
} // namespace dovetail
