// The functions of abi.h for a library, its creators, contexts and resources: each calls one method.
#pragma once

#include "guard.h"
#include "host_context.h"
#include "host_link.h"
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
    HostLink& link = hostLink();
    link.context = context;
    if (!link.isAttached.load())
    {
        link.host = *host;
        link.isAttached.store(true, std::memory_order_release);
    }
    return 0;
}

// The number of calls of the host that have not returned.
DOVETAIL_PRIVATE inline int32_t hostCalls() noexcept
{
    return hostLink().numCalls.load();
}

DOVETAIL_PRIVATE inline uint64_t registrationsVersion() noexcept
{
    return libraryRegistry().list().version() + safeLibraryRegistry().list().version();
}

DOVETAIL_PRIVATE inline int32_t registrations(dovetail_registration_sink sink, void* token)
{
    return guarded([&] {
        for (auto* registry : {&libraryRegistry(), &safeLibraryRegistry()})
        {
            for (Registration const& entry : registry->list().copy())
            {
                dovetail_registration const record{entry.creator, entry.key.name.c_str(), entry.key.version.c_str(),
                    entry.key.space.c_str(), registry == &safeLibraryRegistry() ? 1 : 0, entry.scope};
                enterPython([&] { sink(token, &record); });
            }
        }
    });
}

DOVETAIL_PRIVATE inline int32_t registrationProblem()
{
    return guarded([&] {
        libraryRegistry().raiseProblem();
        safeLibraryRegistry().raiseProblem();
    });
}

inline LibraryRegistry& chooseRegistry(int32_t isSafe) noexcept
{
    return isSafe ? safeLibraryRegistry() : libraryRegistry();
}

DOVETAIL_PRIVATE inline int32_t setScope(void* creator, char const* space, int32_t isSafe, int32_t scope)
{
    return guarded([&] { chooseRegistry(isSafe).setScope(*as<IPluginCreatorInterface>(creator), space, scope); });
}

DOVETAIL_PRIVATE inline int32_t removeRegistrations(void* creator, int32_t isSafe, int32_t* count)
{
    return guarded([&] { *count = chooseRegistry(isSafe).list().remove(as<IPluginCreatorInterface>(creator)); });
}

DOVETAIL_PRIVATE inline int32_t setLoading(int32_t isLoading) noexcept
{
    libraryRegistry().setLoading(isLoading != 0);
    safeLibraryRegistry().setLoading(isLoading != 0);
    return 0;
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

DOVETAIL_PRIVATE inline int32_t contextDelete(void* context) noexcept
{
    delete as<IPluginResourceContext>(context);
    return 0;
}

DOVETAIL_PRIVATE inline int32_t resourceClone(void* resource, void** twin)
{
    return guarded([&] { *twin = as<IPluginResource>(resource)->clone(); });
}

DOVETAIL_PRIVATE inline int32_t resourceRelease(void* resource, int32_t* status)
{
    return guarded([&] { *status = as<IPluginResource>(resource)->release(); });
}

DOVETAIL_PRIVATE inline int32_t resourceDelete(void* resource) noexcept
{
    delete as<IPluginResource>(resource);
    return 0;
}

} // namespace detail
} // namespace dovetail
