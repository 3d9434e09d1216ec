// The functions of abi.h for a library, its creators, contexts and resources: each calls one method.
#pragma once

#include "guard.h"
#include "host_context.h"
#include "library_registry.h"

namespace dovetail
{
namespace detail
{

inline IPluginCreatorV3One* asCreator(void* handle) noexcept
{
    return static_cast<IPluginCreatorV3One*>(as<IPluginCreatorInterface>(handle));
}

DOVETAIL_PRIVATE inline int32_t attachHost(dovetail_host const* host, int64_t context) noexcept
{
    hostLink() = HostLink{host, context};
    return 0;
}

DOVETAIL_PRIVATE inline int32_t registrations(dovetail_registration const** entries, int32_t* count)
{
    static std::vector<dovetail_registration> listed;
    return guarded([&] {
        libraryRegistry().raiseProblem();
        safeLibraryRegistry().raiseProblem();
        listed.clear();
        libraryRegistry().list(listed);
        safeLibraryRegistry().list(listed);
        *entries = listed.data();
        *count = static_cast<int32_t>(listed.size());
    });
}

DOVETAIL_PRIVATE inline int32_t callSetLoggerFinder(void* entry)
{
    return guarded([&] { reinterpret_cast<void (*)(ILoggerFinder*)>(entry)(&hostLoggerFinder()); });
}

DOVETAIL_PRIVATE inline int32_t callInitialise(void* entry, int32_t* succeeded)
{
    return guarded([&] {
        auto const initialise = reinterpret_cast<bool (*)(void*, char const*)>(entry);
        *succeeded = initialise(static_cast<ILogger*>(&hostLogger()), "") ? 1 : 0;
    });
}

DOVETAIL_PRIVATE inline int32_t callGetCreators(void* entry, void* const** creators, int32_t* count)
{
    return guarded([&] {
        auto const list = reinterpret_cast<IPluginCreatorInterface* const* (*)(int32_t&)>(entry);
        *creators = reinterpret_cast<void* const*>(list(*count));
    });
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
        *identity = readIdentity(*made);
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

DOVETAIL_PRIVATE inline int32_t contextCreate(int64_t token, void** context)
{
    return guarded([&] { *context = static_cast<IPluginResourceContext*>(new HostResourceContext{token}); });
}

DOVETAIL_PRIVATE inline int32_t contextDelete(void* context)
{
    return guarded([&] { delete as<IPluginResourceContext>(context); });
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

} // namespace detail
} // namespace dovetail
