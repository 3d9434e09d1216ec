// The functions of abi.h for plugins: each calls one method.
#pragma once

#include "adapt_quick.h"
#include "answers.h"
#include "descs.h"
#include "exchange.h"
#include "guard.h"
#include "host_link.h"

namespace dovetail
{
namespace detail
{

inline IPluginV3OneBuild* asBuild(void* handle) noexcept
{
    return static_cast<IPluginV3OneBuild*>(as<IPluginCapability>(handle));
}

// The build capability of a plugin of the quick interface; null for one of another.
inline QuickBuild* asQuick(void* handle)
{
    auto* build = asBuild(handle);
    InterfaceInfo const info = named("getInterfaceInfo", [&] { return build->getInterfaceInfo(); });
    return info.major == QuickBuild::kMAJOR ? static_cast<QuickBuild*>(build) : nullptr;
}

inline IPluginV3OneRuntime* asRuntime(void* handle) noexcept
{
    return static_cast<IPluginV3OneRuntime*>(as<IPluginCapability>(handle));
}

DOVETAIL_PRIVATE inline int32_t pluginDelete(void* plugin)
{
    return guarded([&] { deleteReleased(as<IPluginV3>(plugin)); });
}

DOVETAIL_PRIVATE inline int32_t pluginClone(void* plugin, void** twin)
{
    return guarded([&] { *twin = as<IPluginV3>(plugin)->clone(); });
}

DOVETAIL_PRIVATE inline int32_t pluginCapability(void* plugin, int32_t type, dovetail_capability* capability)
{
    return guarded([&] {
        *capability = {};
        auto* found = as<IPluginV3>(plugin)->getCapabilityInterface(static_cast<PluginCapabilityType>(type));
        if (found)
        {
            capability->object = found;
            describe(*found, *capability);
        }
    });
}

DOVETAIL_PRIVATE inline int32_t coreIdentity(void* core, dovetail_identity* identity)
{
    return guarded([&] {
        auto const* known = static_cast<IPluginV3OneCore*>(as<IPluginCapability>(core));
        *identity = readIdentity(*known);
    });
}

DOVETAIL_PRIVATE inline int32_t buildNumOutputs(void* build, int32_t* count)
{
    return guarded([&] { *count = asBuild(build)->getNbOutputs(); });
}

DOVETAIL_PRIVATE inline int32_t buildOutputTypes(
    void* build, int32_t* outputs, int32_t nbOutputs, int32_t const* inputs, int32_t const* ranks, int32_t nbInputs, int32_t* status)
{
    return guarded([&] {
        std::vector<DataType> const given(
            reinterpret_cast<DataType const*>(inputs), reinterpret_cast<DataType const*>(inputs) + nbInputs);
        Answers<DataType> answers{nbOutputs, static_cast<DataType>(-1)};
        *status = asQuick(build)
            ? asQuick(build)->getOutputDataTypesOfRanks(answers.data(), nbOutputs, given.data(), ranks, nbInputs)
            : asBuild(build)->getOutputDataTypes(answers.data(), nbOutputs, given.data(), nbInputs);
        for (DataType type : answers.take())
        {
            *outputs++ = static_cast<int32_t>(type);
        }
    });
}

DOVETAIL_PRIVATE inline int32_t buildOutputShapes(void* build, dovetail_expr const* exprs, int32_t nbExprs,
    dovetail_shapes const* inputs, dovetail_shapes const* shapeInputs, int32_t nbOutputs, dovetail_shapes_sink sink,
    int64_t token, int32_t* status)
{
    return guarded([&] {
        ExchangedExprBuilder builder{exprs, nbExprs};
        auto const in = builder.unpack(*inputs);
        auto const shapes = builder.unpack(*shapeInputs);
        DimsExprs unset{};
        unset.nbDims = -1;
        Answers<DimsExprs> answers{nbOutputs, unset};
        *status = asBuild(build)->getOutputShapes(
            in.data(), inputs->count, shapes.data(), shapeInputs->count, answers.data(), nbOutputs, builder);
        auto const out = answers.take();
        builder.requireNoOverflow();
        if (*status == 0)
        {
            std::vector<int32_t> ranks, dims;
            builder.pack(out, ranks, dims);
            auto const records = builder.records();
            dovetail_shapes const packed{nbOutputs, ranks.data(), dims.data()};
            enterPython([&] { sink(token, records.data(), static_cast<int32_t>(records.size()), &packed); });
        }
    });
}

DOVETAIL_PRIVATE inline int32_t buildSupports(
    void* build, int32_t pos, dovetail_dynamic_desc const* inOut, int32_t nbInputs, int32_t nbOutputs, int32_t* accepted)
{
    return guarded([&] {
        BuildDescs const descs{inOut, nbInputs + nbOutputs};
        *accepted = asBuild(build)->supportsFormatCombination(pos, descs, nbInputs, nbOutputs) ? 1 : 0;
    });
}

DOVETAIL_PRIVATE inline int32_t buildConfigure(
    void* build, dovetail_dynamic_desc const* in, int32_t nbInputs, dovetail_dynamic_desc const* out, int32_t nbOutputs, int32_t* status)
{
    return guarded([&] {
        BuildDescs const inputs{in, nbInputs}, outputs{out, nbOutputs};
        *status = asBuild(build)->configurePlugin(inputs, nbInputs, outputs, nbOutputs);
    });
}

DOVETAIL_PRIVATE inline int32_t buildWorkspace(
    void* build, dovetail_dynamic_desc const* in, int32_t nbInputs, dovetail_dynamic_desc const* out, int32_t nbOutputs, uint64_t* size)
{
    return guarded([&] {
        BuildDescs const inputs{in, nbInputs}, outputs{out, nbOutputs};
        *size = asBuild(build)->getWorkspaceSize(inputs, nbInputs, outputs, nbOutputs);
    });
}

DOVETAIL_PRIVATE inline int32_t buildNbTactics(void* build, int32_t* count)
{
    return guarded([&] { *count = asBuild(build)->getNbTactics(); });
}

DOVETAIL_PRIVATE inline int32_t buildTactics(void* build, int32_t* tactics, int32_t count, int32_t* status)
{
    return guarded([&] {
        Answers<int32_t> answers{count, 0};
        *status = asBuild(build)->getValidTactics(answers.data(), count);
        auto const found = answers.take();
        std::copy(found.begin(), found.end(), tactics);
    });
}

// All combinations of a plugin that lists them.
DOVETAIL_PRIVATE inline int32_t buildCombinations(void* build, dovetail_dynamic_desc const* inOut, int32_t nbInputs,
    int32_t nbOutputs, dovetail_formats_sink sink, int64_t token, int32_t* status)
{
    return guarded([&] {
        auto* known = asQuick(build);
        BuildDescs const descs{inOut, nbInputs + nbOutputs};
        std::vector<PluginTensorDesc> listed;
        *status = known ? known->listCombinations(descs, nbInputs, nbOutputs, listed) : 0;
        std::vector<int32_t> types, formats;
        for (PluginTensorDesc const& desc : listed)
        {
            types.push_back(static_cast<int32_t>(desc.type));
            formats.push_back(static_cast<int32_t>(desc.format));
        }
        enterPython([&] { sink(token, types.data(), formats.data(), static_cast<int32_t>(listed.size())); });
    });
}

DOVETAIL_PRIVATE inline int32_t buildFormatLimit(void* build, int32_t* limit)
{
    return guarded([&] { *limit = asBuild(build)->getFormatCombinationLimit(); });
}

DOVETAIL_PRIVATE inline int32_t buildTimingCacheId(void* build, char const** text)
{
    return guarded([&] { *text = asBuild(build)->getTimingCacheID(); });
}

DOVETAIL_PRIVATE inline int32_t buildMetadata(void* build, char const** text)
{
    return guarded([&] { *text = asBuild(build)->getMetadataString(); });
}

DOVETAIL_PRIVATE inline int32_t buildAliasedInput(void* build, int32_t output, int32_t* input)
{
    return guarded([&] {
        auto* known = asBuild(build);
        InterfaceInfo const info = named("getInterfaceInfo", [&] { return known->getInterfaceInfo(); });
        *input = info.major >= 2 ? static_cast<IPluginV3OneBuildV2*>(known)->getAliasedInput(output) : -1;
    });
}

DOVETAIL_PRIVATE inline int32_t runtimeSetTactic(void* runtime, int32_t tactic, int32_t* status)
{
    return guarded([&] { *status = asRuntime(runtime)->setTactic(tactic); });
}

DOVETAIL_PRIVATE inline int32_t runtimeShapeChange(
    void* runtime, dovetail_tensor_desc const* in, int32_t nbInputs, dovetail_tensor_desc const* out, int32_t nbOutputs, int32_t* status)
{
    return guarded([&] {
        RunDescs const inputs{in, nbInputs}, outputs{out, nbOutputs};
        *status = asRuntime(runtime)->onShapeChange(inputs, nbInputs, outputs, nbOutputs);
    });
}

DOVETAIL_PRIVATE inline int32_t runtimeEnqueue(dovetail_run* run)
{
    return guarded([&] {
        RunDescs const inputDesc{run->input_desc, run->nb_inputs}, outputDesc{run->output_desc, run->nb_outputs};
        run->status = asRuntime(run->runtime)->enqueue(inputDesc, outputDesc, run->inputs, run->outputs,
            run->workspace, static_cast<cudaStream_t>(run->stream));
    });
}

DOVETAIL_PRIVATE inline int32_t runtimeAttach(void* runtime, void* context, void** plugin)
{
    return guarded([&] { *plugin = asRuntime(runtime)->attachToContext(as<IPluginResourceContext>(context)); });
}

DOVETAIL_PRIVATE inline int32_t runtimeFields(void* runtime, void const** fields)
{
    return guarded([&] { *fields = asRuntime(runtime)->getFieldsToSerialize(); });
}

} // namespace detail
} // namespace dovetail
