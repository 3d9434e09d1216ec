// The registry of this library: what is registered here, Dovetail registers when it loads the library.
#pragma once

#include "abi.h"
#include "adapt_quick.h"
#include "adapt_v2.h"
#include "guard.h"
#include "registry.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace dovetail
{
namespace detail
{

// The host as the last load of this library left it.
struct HostLink
{
    dovetail_host const* host{};
    int64_t context{};
};

DOVETAIL_PRIVATE inline HostLink& hostLink() noexcept
{
    static HostLink link;
    return link;
}

class DOVETAIL_PRIVATE HostLogger final : public ILogger
{
public:
    void log(Severity severity, AsciiChar const* msg) noexcept override
    {
        HostLink const& link = hostLink();
        if (link.host && msg)
        {
            link.host->log(link.context, static_cast<int32_t>(severity), msg);
        }
    }
};

DOVETAIL_PRIVATE inline HostLogger& hostLogger() noexcept
{
    static HostLogger logger;
    return logger;
}

class DOVETAIL_PRIVATE HostLoggerFinder final : public ILoggerFinder
{
public:
    ILogger* findLogger() override { return &hostLogger(); }
};

DOVETAIL_PRIVATE inline HostLoggerFinder& hostLoggerFinder() noexcept
{
    static HostLoggerFinder finder;
    return finder;
}

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

// The adapter of a creator, made once.
template <typename Adapter, typename Creator>
DOVETAIL_PRIVATE inline IPluginCreatorV3One* findAdapter(Creator* creator)
{
    static std::vector<std::unique_ptr<Adapter>> adapters;
    for (auto const& known : adapters)
    {
        if (known->adapted() == creator)
        {
            return known.get();
        }
    }
    adapters.push_back(std::make_unique<Adapter>(creator));
    return adapters.back().get();
}

// A creator of IPluginV3: itself, or the adapter of one of another interface; null where that is not known.
DOVETAIL_PRIVATE inline IPluginCreatorV3One* adaptCreator(IPluginCreatorInterface& creator)
{
    if (isKind(creator, "PLUGIN CREATOR_V3ONE"))
    {
        return static_cast<IPluginCreatorV3One*>(&creator);
    }
    if (auto* older = asOlder(creator))
    {
        return findAdapter<AdaptedV2Creator>(older);
    }
    auto* quick = asQuick(creator);
    return quick ? findAdapter<AdaptedQuickCreator>(quick) : nullptr;
}

// The creators of this library that were registered and not returned by getCreators.
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
        for (size_t i = 0; i < mCreators.size(); ++i)
        {
            if (mCreators[i] == &creator)
            {
                delete mNamespaces[i];
                mCreators.erase(mCreators.begin() + static_cast<std::ptrdiff_t>(i));
                mNamespaces.erase(mNamespaces.begin() + static_cast<std::ptrdiff_t>(i));
                return true;
            }
        }
        return false;
    }

    IPluginCreatorInterface* const* getAllCreators(int32_t* numCreators) const noexcept override
    {
        *numCreators = static_cast<int32_t>(mCreators.size());
        return mCreators.data();
    }

    IPluginCreator* const* getPluginCreatorList(int32_t* numCreators) const noexcept override
    {
        mOlder.clear();
        for (auto* creator : mCreators)
        {
            guarded([&] {
                if (auto* older = asOlder(*creator))
                {
                    mOlder.push_back(older);
                }
            });
        }
        *numCreators = static_cast<int32_t>(mOlder.size());
        return mOlder.data();
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
        for (size_t i = 0; i < mCreators.size() && !found; ++i)
        {
            guarded([&] { found = matches(i, pluginName, pluginVersion, pluginNamespace) ? mCreators[i] : nullptr; });
        }
        return found;
    }

    IPluginResource* acquirePluginResource(AsciiChar const* key, IPluginResource* resource) noexcept override
    {
        HostLink const& link = hostLink();
        bool const usable = link.host && key && resource;
        return usable ? static_cast<IPluginResource*>(link.host->acquire_resource(link.context, key, resource))
                      : nullptr;
    }

    int32_t releasePluginResource(AsciiChar const* key) noexcept override
    {
        HostLink const& link = hostLink();
        return link.host && key ? link.host->release_resource(link.context, key) : -1;
    }

    IPluginCreatorInterface* const* getAllCreatorsRecursive(int32_t* numCreators) noexcept override
    {
        return getAllCreators(numCreators);
    }

    bool isParentSearchEnabled() const noexcept override { return mSearchesParent; }
    void setParentSearchEnabled(bool enabled) noexcept override { mSearchesParent = enabled; }
    void setErrorRecorder(IErrorRecorder* recorder) noexcept override { mRecorder = recorder; }
    IErrorRecorder* getErrorRecorder() const noexcept override { return mRecorder; }

    void list(std::vector<dovetail_registration>& entries) const
    {
        for (size_t i = 0; i < mCreators.size(); ++i)
        {
            entries.push_back({mCreators[i], mNamespaces[i]->c_str(), mIsSafe ? 1 : 0});
        }
    }

    ~LibraryRegistry() noexcept override
    {
        for (std::string* place : mNamespaces)
        {
            delete place;
        }
    }

private:
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
        if (getCreator(identity.name, identity.version, space.c_str()))
        {
            return false;
        }
        if (auto* older = asOlder(creator))
        {
            named("setPluginNamespace", [&] { older->setPluginNamespace(space.c_str()); });
        }
        mCreators.push_back(&creator);
        mNamespaces.push_back(new std::string(space));
        return true;
    }

    bool matches(size_t index, char const* name, char const* version, char const* space) const
    {
        if (!sameText(mNamespaces[index]->c_str(), space))
        {
            return false;
        }
        dovetail_identity const identity = readIdentity(*adaptCreator(*mCreators[index]));
        return sameText(identity.name, name) && sameText(identity.version, version);
    }

    bool mIsSafe;
    LastFailure mProblem{};
    std::vector<IPluginCreatorInterface*> mCreators;
    std::vector<std::string*> mNamespaces;
    mutable std::vector<IPluginCreator*> mOlder;
    bool mSearchesParent{true};
    IErrorRecorder* mRecorder{nullptr};
};

DOVETAIL_PRIVATE inline LibraryRegistry& libraryRegistry() noexcept
{
    static LibraryRegistry registry{false};
    return registry;
}

DOVETAIL_PRIVATE inline LibraryRegistry& safeLibraryRegistry() noexcept
{
    static LibraryRegistry registry{true};
    return registry;
}

// Registers a creator while the system loads the library, where an exception would end the process.
template <typename T>
T* constructAndRegister(LibraryRegistry& registry) noexcept
{
    T* creator = nullptr;
    if (guarded([&] { creator = named("the constructor of a creator", [] { return new T{}; }); }))
    {
        registry.keepProblem();
        return nullptr;
    }
    registry.registerCreator(*creator, "");
    return creator;
}

} // namespace detail
} // namespace dovetail

// Of this library: what is registered here, Dovetail registers when it loads the library.
extern "C" DOVETAIL_PRIVATE inline nvinfer1::IPluginRegistry* getPluginRegistry() noexcept
{
    return &dovetail::detail::libraryRegistry();
}

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

// Registers one creator while the library is loaded.
template <typename T>
class PluginRegistrar
{
public:
    PluginRegistrar() noexcept
        : mCreator{dovetail::detail::constructAndRegister<T>(dovetail::detail::libraryRegistry())}
    {
    }

private:
    std::unique_ptr<T, dovetail::detail::Discard> mCreator;
};

template <typename T>
class SafePluginRegistrar
{
public:
    SafePluginRegistrar() noexcept
        : mCreator{dovetail::detail::constructAndRegister<T>(dovetail::detail::safeLibraryRegistry())}
    {
    }

private:
    std::unique_ptr<T, dovetail::detail::Discard> mCreator;
};

} // namespace dovetail_v1
} // namespace nvinfer1

#define REGISTER_TENSORRT_PLUGIN(name) static ::nvinfer1::PluginRegistrar<name> pluginRegistrar##name {}
#define REGISTER_SAFE_TENSORRT_PLUGIN(name) static ::nvinfer1::SafePluginRegistrar<name> safePluginRegistrar##name {}
