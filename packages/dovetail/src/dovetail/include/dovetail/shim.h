// The binary interface of abi.h: the table of functions that this library exports.
#pragma once

#include "abi.h"
#include "library_calls.h"
#include "plugin_calls.h"

namespace dovetail
{
namespace detail
{

// Private, so that two libraries in one process do not share it.
DOVETAIL_PRIVATE inline dovetail_plugin_table const* pluginTable() noexcept
{
    static constexpr dovetail_plugin_table table{
        DOVETAIL_ABI_VERSION,
        sizeof(dovetail_plugin_table),
        sizeof(dovetail_tensor_desc),
        sizeof(dovetail_dynamic_desc),
        sizeof(PluginField),
        sizeof(Dims),
        lastError,
        lastMethod,
        attachHost,
        hostCalls,
        registrationsVersion,
        registrations,
        registrationProblem,
        setScope,
        removeRegistrations,
        setLoading,
        callSetLoggerFinder,
        callInitialise,
        callGetCreators,
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
        buildCombinations,
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
