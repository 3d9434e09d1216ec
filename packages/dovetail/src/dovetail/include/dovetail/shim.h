// The functions behind the binary interface of abi.h: each calls one method and lets no exception out.
#pragma once

#include "abi.h"
#include "exchange.h"
#include "host_context.h"
#include "library_registry.h"

#include <cstdio>
#include <exception>
#include <stdexcept>

namespace dovetail
{
namespace detail
{

// Plain memory, so that a thread that ends after the library is unloaded has nothing to destroy.
DOVETAIL_PRIVATE inline char* errorText() noexcept
{
    static thread_local char text[1024];
    return text;
}

DOVETAIL_PRIVATE inline int32_t fail(char const* text) noexcept
{
    std::snprintf(errorText(), 1024, "%s", text);
    return 1;
}

template <typename F>
int32_t guarded(F&& call) noexcept
{
    try
    {
        call();
        return 0;
    }
    catch (std::exception const& error)
    {
        return fail(error.what());
    }
    catch (...)
    {
        return fail("an exception that is no std::exception");
    }
}

template <typename T>
T* as(void* handle) noexcept
{
    return static_cast<T*>(handle);
}

inline IPluginV3OneBuild* asBuild(void* handle) noexcept
{
    return static_cast<IPluginV3OneBuild*>(as<IPluginCapability>(handle));
}

inline IPluginV3OneRuntime* asRuntime(void* handle) noexcept
{
    return static_cast<IPluginV3OneRuntime*>(as<IPluginCapability>(handle));
}

inline IPluginCreatorV3One* asCreator(void* handle) noexcept
{
    return static_cast<IPluginCreatorV3One*>(as<IPluginCreatorInterface>(handle));
}

inline void describe(IVersionedInterface const& object, dovetail_capability& described)
{
    InterfaceInfo const info = object.getInterfaceInfo();
    described.kind = info.kind;
    described.major = info.major;
    described.minor = info.minor;
}

DOVETAIL_PRIVATE inline char const* lastError()
{
    return errorText();
}

DOVETAIL_PRIVATE inline int32_t attachHost(dovetail_host const* host, int64_t context)
{
    hostLink() = HostLink{host, context};
    return 0;
}

DOVETAIL_PRIVATE inline int32_t registrations(dovetail_registration const** entries, int32_t* count)
{
    static std::vector<dovetail_registration> listed;
    return guarded([&] {
        listed.clear();
        libraryRegistry().list(listed);
        safeLibraryRegistry().list(listed);
        *entries = listed.data();
        *count = static_cast<int32_t>(listed.size());
    });
}

DOVETAIL_PRIVATE inline void* logger()
{
    return static_cast<ILogger*>(&hostLogger());
}

DOVETAIL_PRIVATE inline void* loggerFinder()
{
    return static_cast<ILoggerFinder*>(&hostLoggerFinder());
}

DOVETAIL_PRIVATE inline int32_t creatorInterface(void* creator, dovetail_capability* info)
{
    return guarded([&] {
        info->object = creator;
        describe(*as<IPluginCreatorInterface>(creator), *info);
    });
}

DOVETAIL_PRIVATE inline int32_t creatorAdapt(void* creator, void** adapted)
{
    return guarded([&] {
        IPluginCreatorInterface* made = adaptCreator(*as<IPluginCreatorInterface>(creator));
        *adapted = made;
    });
}

DOVETAIL_PRIVATE inline int32_t creatorIdentity(void* creator, dovetail_identity* identity)
{
    return guarded([&] {
        auto const* made = asCreator(creator);
        *identity = {made->getPluginName(), made->getPluginVersion(), made->getPluginNamespace()};
    });
}

DOVETAIL_PRIVATE inline int32_t creatorFields(void* creator, void const** fields)
{
    return guarded([&] { *fields = asCreator(creator)->getFieldNames(); });
}

DOVETAIL_PRIVATE inline int32_t creatorCreate(void* creator, char const* name, void const* fields, int32_t phase, void** plugin)
{
    return guarded([&] {
        *plugin = asCreator(creator)->createPlugin(
            name, static_cast<PluginFieldCollection const*>(fields), static_cast<TensorRTPhase>(phase));
    });
}

DOVETAIL_PRIVATE inline int32_t pluginDelete(void* plugin)
{
    return guarded([&] { delete as<IPluginV3>(plugin); });
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
        *identity = {known->getPluginName(), known->getPluginVersion(), known->getPluginNamespace()};
    });
}

DOVETAIL_PRIVATE inline int32_t buildNumOutputs(void* build, int32_t* count)
{
    return guarded([&] { *count = asBuild(build)->getNbOutputs(); });
}

DOVETAIL_PRIVATE inline int32_t buildOutputTypes(
    void* build, int32_t* outputs, int32_t nbOutputs, int32_t const* inputs, int32_t nbInputs, int32_t* status)
{
    return guarded([&] {
        std::vector<DataType> const given(
            reinterpret_cast<DataType const*>(inputs), reinterpret_cast<DataType const*>(inputs) + nbInputs);
        std::vector<DataType> answer(static_cast<size_t>(nbOutputs), static_cast<DataType>(-1));
        *status = asBuild(build)->getOutputDataTypes(answer.data(), nbOutputs, given.data(), nbInputs);
        for (int32_t i = 0; i < nbOutputs; ++i)
        {
            outputs[i] = static_cast<int32_t>(answer[static_cast<size_t>(i)]);
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
        std::vector<DimsExprs> out(static_cast<size_t>(nbOutputs), unset);
        *status = asBuild(build)->getOutputShapes(
            in.data(), inputs->count, shapes.data(), shapeInputs->count, out.data(), nbOutputs, builder);
        if (*status == 0)
        {
            std::vector<int32_t> ranks, dims;
            builder.pack(out, ranks, dims);
            auto const records = builder.records();
            dovetail_shapes const packed{nbOutputs, ranks.data(), dims.data()};
            sink(token, records.data(), static_cast<int32_t>(records.size()), &packed);
        }
    });
}

DOVETAIL_PRIVATE inline int32_t buildSupports(
    void* build, int32_t pos, void const* inOut, int32_t nbInputs, int32_t nbOutputs, int32_t* accepted)
{
    return guarded([&] {
        auto const* descs = static_cast<DynamicPluginTensorDesc const*>(inOut);
        *accepted = asBuild(build)->supportsFormatCombination(pos, descs, nbInputs, nbOutputs) ? 1 : 0;
    });
}

DOVETAIL_PRIVATE inline int32_t buildConfigure(
    void* build, void const* in, int32_t nbInputs, void const* out, int32_t nbOutputs, int32_t* status)
{
    return guarded([&] {
        *status = asBuild(build)->configurePlugin(static_cast<DynamicPluginTensorDesc const*>(in), nbInputs,
            static_cast<DynamicPluginTensorDesc const*>(out), nbOutputs);
    });
}

DOVETAIL_PRIVATE inline int32_t buildWorkspace(
    void* build, void const* in, int32_t nbInputs, void const* out, int32_t nbOutputs, uint64_t* size)
{
    return guarded([&] {
        *size = asBuild(build)->getWorkspaceSize(static_cast<DynamicPluginTensorDesc const*>(in), nbInputs,
            static_cast<DynamicPluginTensorDesc const*>(out), nbOutputs);
    });
}

DOVETAIL_PRIVATE inline int32_t buildNbTactics(void* build, int32_t* count)
{
    return guarded([&] { *count = asBuild(build)->getNbTactics(); });
}

DOVETAIL_PRIVATE inline int32_t buildTactics(void* build, int32_t* tactics, int32_t count, int32_t* status)
{
    return guarded([&] { *status = asBuild(build)->getValidTactics(tactics, count); });
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
        bool const can = known->getInterfaceInfo().major >= 2;
        *input = can ? static_cast<IPluginV3OneBuildV2*>(known)->getAliasedInput(output) : -1;
    });
}

DOVETAIL_PRIVATE inline int32_t runtimeSetTactic(void* runtime, int32_t tactic, int32_t* status)
{
    return guarded([&] { *status = asRuntime(runtime)->setTactic(tactic); });
}

DOVETAIL_PRIVATE inline int32_t runtimeShapeChange(
    void* runtime, void const* in, int32_t nbInputs, void const* out, int32_t nbOutputs, int32_t* status)
{
    return guarded([&] {
        *status = asRuntime(runtime)->onShapeChange(static_cast<PluginTensorDesc const*>(in), nbInputs,
            static_cast<PluginTensorDesc const*>(out), nbOutputs);
    });
}

DOVETAIL_PRIVATE inline int32_t runtimeEnqueue(void* runtime, void const* inputDesc, void const* outputDesc,
    void const* const* inputs, void* const* outputs, void* workspace, void* stream, int32_t* status)
{
    return guarded([&] {
        *status = asRuntime(runtime)->enqueue(static_cast<PluginTensorDesc const*>(inputDesc),
            static_cast<PluginTensorDesc const*>(outputDesc), inputs, outputs, workspace,
            static_cast<cudaStream_t>(stream));
    });
}

DOVETAIL_PRIVATE inline int32_t contextCreate(int64_t token, void** context)
{
    return guarded([&] { *context = static_cast<IPluginResourceContext*>(new HostResourceContext{token}); });
}

DOVETAIL_PRIVATE inline int32_t contextDelete(void* context)
{
    return guarded([&] { delete as<IPluginResourceContext>(context); });
}

DOVETAIL_PRIVATE inline int32_t runtimeAttach(void* runtime, void* context, void** plugin)
{
    return guarded([&] { *plugin = asRuntime(runtime)->attachToContext(as<IPluginResourceContext>(context)); });
}

DOVETAIL_PRIVATE inline int32_t runtimeFields(void* runtime, void const** fields)
{
    return guarded([&] { *fields = asRuntime(runtime)->getFieldsToSerialize(); });
}

DOVETAIL_PRIVATE inline int32_t resourceClone(void* resource, void** twin)
{
    return guarded([&] { *twin = as<IPluginResource>(resource)->clone(); });
}

DOVETAIL_PRIVATE inline int32_t resourceRelease(void* resource, int32_t* status)
{
    return guarded([&] { *status = as<IPluginResource>(resource)->release(); });
}

DOVETAIL_PRIVATE inline int32_t resourceDelete(void* resource)
{
    return guarded([&] { delete as<IPluginResource>(resource); });
}

// Private, so that two libraries in one process do not share it.
DOVETAIL_PRIVATE inline dovetail_plugin_table const* pluginTable() noexcept
{
    static constexpr dovetail_plugin_table table{
        DOVETAIL_ABI_VERSION,
        sizeof(dovetail_plugin_table),
        sizeof(dovetail::PluginTensorDesc),
        sizeof(dovetail::DynamicPluginTensorDesc),
        sizeof(dovetail::PluginField),
        0,
        lastError,
        attachHost,
        registrations,
        logger,
        loggerFinder,
        creatorInterface,
        creatorAdapt,
        creatorIdentity,
        creatorFields,
        creatorCreate,
        pluginDelete,
        pluginClone,
        pluginCapability,
        coreIdentity,
        buildNumOutputs,
        buildOutputTypes,
        buildOutputShapes,
        buildSupports,
        buildConfigure,
        buildWorkspace,
        buildNbTactics,
        buildTactics,
        buildFormatLimit,
        buildTimingCacheId,
        buildMetadata,
        buildAliasedInput,
        runtimeSetTactic,
        runtimeShapeChange,
        runtimeEnqueue,
        runtimeAttach,
        runtimeFields,
        contextCreate,
        contextDelete,
        resourceClone,
        resourceRelease,
        resourceDelete,
    };
    return &table;
}

} // namespace detail
} // namespace dovetail

extern "C" __attribute__((used)) DOVETAIL_EXPORT inline dovetail_plugin_table const* dovetail_plugin_abi()
{
    return dovetail::detail::pluginTable();
}
