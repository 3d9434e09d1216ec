// The registry that this library sees: its own registrations, and those of the process in every other library.
#pragma once

#include "abi.h"
#include "adapt_quick.h"
#include "adapt_v2.h"
#include "guard.h"
#include "host_link.h"
#include "loaded_libraries.h"
#include "registrations.h"
#include "registry.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace dovetail
{
namespace detail
{

inline bool isKind(IPluginCreatorInterface const& creator, char const* kind)
{
    return sameText(named("getInterfaceInfo", [&] { return creator.getInterfaceInfo(); }).kind, kind);
}

inline IPluginCreator* asOlder(IPluginCreatorInterface& creator)
{
    return isKind(creator, "PLUGIN CREATOR_V1") ? static_cast<IPluginCreator*>(&creator) : nullptr;
}

inline IPluginCreatorV3Quick* asQuick(IPluginCreatorInterface& creator)
{
    return isKind(creator, "PLUGIN CREATOR_V3QUICK") ? static_cast<IPluginCreatorV3Quick*>(&creator) : nullptr;
}

// The adapters of the creators of one interface; each is made once.
template <typename Adapter, typename Creator>
class DOVETAIL_PRIVATE AdapterList
{
public:
    IPluginCreatorV3One* find(Creator* creator)
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        for (auto const& known : mAdapters)
        {
            if (known->adapted() == creator)
            {
                return known.get();
            }
        }
        mAdapters.push_back(std::make_unique<Adapter>(creator));
        return mAdapters.back().get();
    }

    void clear() noexcept
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        std::vector<std::unique_ptr<Adapter>>{}.swap(mAdapters);
    }

private:
    std::mutex mMutex;
    std::vector<std::unique_ptr<Adapter>> mAdapters;
};

using OlderAdapters = AdapterList<AdaptedV2Creator, IPluginCreator>;
using QuickAdapters = AdapterList<AdaptedQuickCreator, IPluginCreatorV3Quick>;

// Returns a creator of IPluginV3: itself, or the adapter of one of another interface; null for unknown interfaces.
DOVETAIL_PRIVATE inline IPluginCreatorV3One* adaptCreator(IPluginCreatorInterface& creator)
{
    if (isKind(creator, "PLUGIN CREATOR_V3ONE"))
    {
        return static_cast<IPluginCreatorV3One*>(&creator);
    }
    if (auto* older = asOlder(creator))
    {
        return immortal<OlderAdapters>().find(older);
    }
    auto* quick = asQuick(creator);
    return quick ? immortal<QuickAdapters>().find(quick) : nullptr;
}

class DOVETAIL_PRIVATE LibraryRegistry final : public IPluginRegistry
{
public:
    explicit LibraryRegistry(bool isSafe) noexcept
        : mIsSafe{isSafe}
    {
    }

    bool registerCreator(IPluginCreatorInterface& creator, AsciiChar const* pluginNamespace) noexcept override
    {
        bool isNew = false;
        bool const failed = guarded([&] { isNew = add(creator, pluginNamespace ? pluginNamespace : ""); }) != 0;
        if (failed)
        {
            keepProblem();
        }
        return isNew && !failed;
    }

    // Keeps the exception that `guarded` caught last, for the load of the library, which raises it.
    void keepProblem() noexcept
    {
        if (!mProblem.text[0])
        {
            mProblem = lastFailure();
        }
    }

    // Throws the exception of a registration, once.
    void raiseProblem()
    {
        if (mProblem.text[0])
        {
            LastFailure const problem = std::exchange(mProblem, LastFailure{});
            currentMethod() = problem.method;
            throw std::runtime_error(problem.text);
        }
    }

    bool deregisterCreator(IPluginCreatorInterface const& creator) noexcept override
    {
        if (mList.remove(&creator))
        {
            return true;
        }
        auto* const handle = const_cast<IPluginCreatorInterface*>(&creator);
        bool removed = false;
        guarded([&] {
            removed = visitLibraries([&](dovetail_plugin_table const& table) noexcept {
                int32_t count = 0;
                return !table.remove_registrations(handle, mIsSafe, &count) && count > 0;
            });
        });
        return removed;
    }

    IPluginCreatorInterface* const* getAllCreators(int32_t* numCreators) const noexcept override
    {
        std::vector<IPluginCreatorInterface*> creators;
        guarded([&] { creators = listCreators(); });
        return keepSnapshot(mSnapshots, std::move(creators), numCreators);
    }

    IPluginCreator* const* getPluginCreatorList(int32_t* numCreators) const noexcept override
    {
        std::vector<IPluginCreator*> olderCreators;
        guarded([&] {
            for (auto* creator : listCreators())
            {
                guarded([&] {
                    if (auto* older = asOlder(*creator))
                    {
                        olderCreators.push_back(older);
                    }
                });
            }
        });
        return keepSnapshot(mOlderSnapshots, std::move(olderCreators), numCreators);
    }

    IPluginCreator* getPluginCreator(AsciiChar const* pluginName, AsciiChar const* pluginVersion,
        AsciiChar const* pluginNamespace) noexcept override
    {
        auto* found = getCreator(pluginName, pluginVersion, pluginNamespace);
        IPluginCreator* older = nullptr;
        guarded([&] { older = found ? asOlder(*found) : nullptr; });
        return older;
    }

    IPluginCreatorInterface* getCreator(AsciiChar const* pluginName, AsciiChar const* pluginVersion,
        AsciiChar const* pluginNamespace) noexcept override
    {
        IPluginCreatorInterface* found = nullptr;
        guarded([&] {
            CreatorKey const key{pluginName, pluginVersion, pluginNamespace};
            found = mList.find(key);
            found = found ? found : findElsewhere(key);
        });
        return found;
    }

    IPluginResource* acquirePluginResource(AsciiChar const* key, IPluginResource* resource) noexcept override
    {
        void* const shared = callHost(static_cast<void*>(nullptr), [&](dovetail_host const& host, int64_t context) {
            return key && resource ? host.acquire_resource(context, key, resource) : nullptr;
        });
        return static_cast<IPluginResource*>(shared);
    }

    int32_t releasePluginResource(AsciiChar const* key) noexcept override
    {
        return callHost(int32_t{-1}, [&](dovetail_host const& host, int64_t context) {
            return key ? host.release_resource(context, key) : -1;
        });
    }

    // This registry has no parent.
    IPluginCreatorInterface* const* getAllCreatorsRecursive(int32_t* numCreators) noexcept override
    {
        return getAllCreators(numCreators);
    }

    bool isParentSearchEnabled() const noexcept override { return mSearchesParent; }
    void setParentSearchEnabled(bool enabled) noexcept override { mSearchesParent = enabled; }
    void setErrorRecorder(IErrorRecorder* recorder) noexcept override { mRecorder = recorder; }
    IErrorRecorder* getErrorRecorder() const noexcept override { return mRecorder; }

    RegistrationList& list() noexcept { return mList; }

    // Sets the scope of a registration, and adds it where a creator was not registered but returned by getCreators.
    void setScope(IPluginCreatorInterface& creator, char const* space, int32_t scope)
    {
        auto* const adapted = adaptCreator(creator);
        if (adapted)
        {
            dovetail_identity const identity = readIdentity(*adapted);
            mList.put({&creator, CreatorKey{identity.name, identity.version, space}, scope});
        }
    }

    // Whether Dovetail is loading this library into one of its registries.
    void setLoading(bool isLoading) noexcept { mIsLoading = isLoading; }

    void clear() noexcept
    {
        mList.clear();
        std::lock_guard<std::mutex> const lock{mMutex};
        Snapshots<IPluginCreatorInterface>{}.swap(mSnapshots);
        Snapshots<IPluginCreator>{}.swap(mOlderSnapshots);
    }

private:
    template <typename T>
    using Snapshots = std::vector<std::unique_ptr<std::vector<T*> const>>;

    // False where a creator of this name, version and namespace is registered.
    bool add(IPluginCreatorInterface& creator, std::string const& space)
    {
        auto* adapted = adaptCreator(creator);
        if (!adapted)
        {
            InterfaceInfo const info = creator.getInterfaceInfo();
            throw std::invalid_argument(std::string("registerCreator got a creator of the interface ")
                + (info.kind ? info.kind : "null") + ", which is not supported");
        }
        dovetail_identity const identity = readIdentity(*adapted);
        CreatorKey const key{identity.name, identity.version, space.c_str()};
        bool const isLoading = mIsLoading;
        if (auto const* known = mList.find(key))
        {
            if (isLoading)
            {
                if (known != &creator)
                {
                    hostLogger().log(ILogger::Severity::kWARNING,
                        ("the library registers plugin '" + key.name + "' twice, of which one is kept").c_str());
                }
                return true;
            }
            if (mList.isScope(key, DOVETAIL_SCOPE_PROCESS))
            {
                return false;
            }
        }
        bool const isDuplicate = !isLoading && isRegisteredElsewhere(key);
        if (auto* older = asOlder(creator))
        {
            named("setPluginNamespace", [&] { older->setPluginNamespace(space.c_str()); });
        }
        mList.put({&creator, key,
            isDuplicate     ? DOVETAIL_SCOPE_DUPLICATE
                : isLoading ? DOVETAIL_SCOPE_LOADER
                            : DOVETAIL_SCOPE_PROCESS});
        return !isDuplicate;
    }

    bool isRegisteredElsewhere(CreatorKey const& key) const
    {
        return findElsewhere(key) || callHost(int32_t{0}, [&](dovetail_host const& host, int64_t) {
            return host.has_creator(key.name.c_str(), key.version.c_str(), key.space.c_str(), mIsSafe);
        });
    }

    IPluginCreatorInterface* findElsewhere(CreatorKey const& key) const
    {
        IPluginCreatorInterface* found = nullptr;
        visitRegistrations([&](dovetail_registration const& entry) {
            found = key == CreatorKey{entry.name, entry.version, entry.name_space}
                ? static_cast<IPluginCreatorInterface*>(entry.creator)
                : found;
            return found != nullptr;
        });
        return found;
    }

    std::vector<IPluginCreatorInterface*> listCreators() const
    {
        std::vector<IPluginCreatorInterface*> creators = mList.creators();
        visitRegistrations([&](dovetail_registration const& entry) {
            creators.push_back(static_cast<IPluginCreatorInterface*>(entry.creator));
            return false;
        });
        return creators;
    }

    // Calls `visit` with each registration of another library for the process, until it returns true.
    template <typename F>
    void visitRegistrations(F&& visit) const
    {
        struct State
        {
            F& visit;
            bool isSafe;
            bool isDone;
        } state{visit, mIsSafe, false};
        auto const receive = [](void* token, dovetail_registration const* entry) noexcept {
            auto& known = *static_cast<State*>(token);
            bool const isWanted = entry->scope == DOVETAIL_SCOPE_PROCESS && (entry->is_safe != 0) == known.isSafe;
            if (isWanted && !known.isDone)
            {
                guarded([&] { known.isDone = known.visit(*entry); });
            }
        };
        visitLibraries([&](dovetail_plugin_table const& table) noexcept {
            table.registrations(receive, &state);
            return state.isDone;
        });
    }

    // The caller keeps the pointer for as long as the registry lives, so each distinct list is kept.
    template <typename T>
    T* const* keepSnapshot(Snapshots<T>& snapshots, std::vector<T*> list, int32_t* count) const noexcept
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        T* const* kept = nullptr;
        *count = 0;
        guarded([&] {
            auto const same = [&](auto const& known) { return *known == list; };
            auto found = std::find_if(snapshots.begin(), snapshots.end(), same);
            if (found == snapshots.end())
            {
                snapshots.push_back(std::make_unique<std::vector<T*> const>(std::move(list)));
                found = snapshots.end() - 1;
            }
            *count = static_cast<int32_t>((*found)->size());
            kept = (*found)->data();
        });
        return kept;
    }

    bool mIsSafe;
    std::atomic<bool> mIsLoading{false};
    LastFailure mProblem{};
    RegistrationList mList;
    mutable std::mutex mMutex;
    mutable Snapshots<IPluginCreatorInterface> mSnapshots;
    mutable Snapshots<IPluginCreator> mOlderSnapshots;
    bool mSearchesParent{true};
    IErrorRecorder* mRecorder{nullptr};
};

// The registries are never destroyed, because static destructors may use them. When the library is unloaded they are
// emptied; not when the process ends, where threads may still run plugins.
struct DOVETAIL_PRIVATE RegistryCleaner
{
    LibraryRegistry& registry;
    ~RegistryCleaner()
    {
        if (!isHostGone())
        {
            registry.clear();
            immortal<OlderAdapters>().clear();
            immortal<QuickAdapters>().clear();
        }
    }
};

DOVETAIL_PRIVATE inline LibraryRegistry& libraryRegistry() noexcept
{
    alignas(LibraryRegistry) static unsigned char storage[sizeof(LibraryRegistry)];
    static RegistryCleaner const cleaner{*::new (storage) LibraryRegistry{false}};
    return cleaner.registry;
}

DOVETAIL_PRIVATE inline LibraryRegistry& safeLibraryRegistry() noexcept
{
    alignas(LibraryRegistry) static unsigned char storage[sizeof(LibraryRegistry)];
    static RegistryCleaner const cleaner{*::new (storage) LibraryRegistry{true}};
    return cleaner.registry;
}

// The creator of a registration macro: registered while the system loads the library, where an exception would end the
// process, and deregistered before it is destroyed.
class DOVETAIL_PRIVATE StaticCreator
{
public:
    template <typename F>
    StaticCreator(LibraryRegistry& registry, F&& make) noexcept
        : mRegistry{registry}
    {
        if (guarded([&] { mCreator.reset(named("the constructor of a creator", make)); }))
        {
            registry.keepProblem();
        }
        else
        {
            registry.registerCreator(*mCreator, "");
        }
    }
    ~StaticCreator()
    {
        if (isHostGone())
        {
            mCreator.release(); // a thread may still use it
        }
        else if (mCreator)
        {
            mRegistry.list().remove(mCreator.get());
        }
    }

private:
    LibraryRegistry& mRegistry;
    std::unique_ptr<IPluginCreatorInterface> mCreator;
};

} // namespace detail
} // namespace dovetail

// The registry of the process. It finds the creators that any library registered with it, and all of this library.
extern "C" DOVETAIL_PRIVATE inline nvinfer1::IPluginRegistry* getPluginRegistry() noexcept
{
    return &dovetail::detail::libraryRegistry();
}

// The same for creators that are declared safe.
extern "C" DOVETAIL_PRIVATE inline nvinfer1::IPluginRegistry* getSafePluginRegistry() noexcept
{
    return &dovetail::detail::safeLibraryRegistry();
}

extern "C" DOVETAIL_PRIVATE inline nvinfer1::ILogger* getLogger() noexcept
{
    return &dovetail::detail::hostLogger();
}

// The version of the contract, as its library would say it.
extern "C" DOVETAIL_PRIVATE inline int32_t getInferLibVersion() noexcept
{
    return NV_TENSORRT_VERSION;
}

namespace nvinfer1
{
inline namespace dovetail_v1
{

DOVETAIL_PRIVATE inline IPluginRegistry* getBuilderPluginRegistry(EngineCapability capability) noexcept
{
    return capability == EngineCapability::kSAFETY ? getSafePluginRegistry() : getPluginRegistry();
}

// Registers one creator in the default namespace while the library is loaded.
template <typename T>
class DOVETAIL_PRIVATE PluginRegistrar
{
private:
    // The constructor is called here, because it may be private in a class with this class as a friend.
    dovetail::detail::StaticCreator mCreator{dovetail::detail::libraryRegistry(), [] { return new T{}; }};
};

template <typename T>
class DOVETAIL_PRIVATE SafePluginRegistrar
{
private:
    dovetail::detail::StaticCreator mCreator{dovetail::detail::safeLibraryRegistry(), [] { return new T{}; }};
};

} // namespace dovetail_v1
} // namespace nvinfer1

#define REGISTER_TENSORRT_PLUGIN(name) static ::nvinfer1::PluginRegistrar<name> pluginRegistrar##name {}
#define REGISTER_SAFE_TENSORRT_PLUGIN(name) static ::nvinfer1::SafePluginRegistrar<name> safePluginRegistrar##name {}
