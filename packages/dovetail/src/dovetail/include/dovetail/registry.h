// Loggers and the registry of this library: what is registered here, Dovetail registers when it loads the library.
#pragma once

#include "abi.h"
#include "adapt_v2.h"
#include "plugin.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace dovetail
{

class ILogger
{
public:
    enum class Severity : int32_t
    {
        kINTERNAL_ERROR = 0,
        kERROR = 1,
        kWARNING = 2,
        kINFO = 3,
        kVERBOSE = 4,
    };

    virtual void log(Severity severity, AsciiChar const* msg) noexcept = 0;
    virtual ~ILogger() = default;

protected:
    ILogger() = default;
    ILogger(ILogger const&) = default;
    ILogger& operator=(ILogger const&) & = default;
};

class ILoggerFinder
{
public:
    virtual ILogger* findLogger() = 0;

protected:
    virtual ~ILoggerFinder() = default;
};

class IPluginRegistry
{
public:
    // False where the library has a creator of the same name, version and namespace already.
    virtual bool registerCreator(IPluginCreatorInterface& creator, AsciiChar const* pluginNamespace) noexcept = 0;
    virtual bool deregisterCreator(IPluginCreatorInterface const& creator) noexcept = 0;
    virtual IPluginCreatorInterface* const* getAllCreators(int32_t* numCreators) const noexcept = 0;
    // A creator of this library, or null.
    virtual IPluginCreatorInterface* getCreator(AsciiChar const* pluginName, AsciiChar const* pluginVersion,
        AsciiChar const* pluginNamespace = "") noexcept
        = 0;
    // The resources of Dovetail's global registry, which all libraries and Python plugins share.
    virtual IPluginResource* acquirePluginResource(AsciiChar const* key, IPluginResource* resource) noexcept = 0;
    virtual int32_t releasePluginResource(AsciiChar const* key) noexcept = 0;

protected:
    virtual ~IPluginRegistry() noexcept = default;
};

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

inline bool isKind(IPluginCreatorInterface const& creator, char const* kind) noexcept
{
    return std::strcmp(creator.getInterfaceInfo().kind, kind) == 0;
}

inline IPluginCreator* asOlder(IPluginCreatorInterface& creator) noexcept
{
    return isKind(creator, "PLUGIN CREATOR_V1") ? static_cast<IPluginCreator*>(&creator) : nullptr;
}

// A creator of IPluginV3: itself, or the adapter of an older one, made once; null where it is neither.
DOVETAIL_PRIVATE inline IPluginCreatorV3One* adaptCreator(IPluginCreatorInterface& creator)
{
    static std::vector<std::unique_ptr<AdaptedV2Creator>> adapters;
    if (isKind(creator, "PLUGIN CREATOR_V3ONE"))
    {
        return static_cast<IPluginCreatorV3One*>(&creator);
    }
    auto* older = asOlder(creator);
    for (auto const& known : adapters)
    {
        if (known->adapted() == older)
        {
            return known.get();
        }
    }
    if (older)
    {
        adapters.push_back(std::make_unique<AdaptedV2Creator>(older));
    }
    return older ? adapters.back().get() : nullptr;
}

inline bool sameText(char const* first, char const* second) noexcept
{
    return std::strcmp(first ? first : "", second ? second : "") == 0;
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
        auto* made = adaptCreator(creator);
        std::string const place = pluginNamespace ? pluginNamespace : "";
        if (!made || getCreator(made->getPluginName(), made->getPluginVersion(), place.c_str()))
        {
            return false;
        }
        if (auto* older = asOlder(creator))
        {
            older->setPluginNamespace(place.c_str());
        }
        mCreators.push_back(&creator);
        mNamespaces.push_back(new std::string(place));
        return true;
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

    IPluginCreatorInterface* getCreator(AsciiChar const* pluginName, AsciiChar const* pluginVersion,
        AsciiChar const* pluginNamespace) noexcept override
    {
        for (size_t i = 0; i < mCreators.size(); ++i)
        {
            auto* known = adaptCreator(*mCreators[i]);
            if (sameText(known->getPluginName(), pluginName)
                && sameText(known->getPluginVersion(), pluginVersion)
                && sameText(mNamespaces[i]->c_str(), pluginNamespace))
            {
                return mCreators[i];
            }
        }
        return nullptr;
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
    bool mIsSafe;
    std::vector<IPluginCreatorInterface*> mCreators;
    std::vector<std::string*> mNamespaces;
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

} // namespace detail

DOVETAIL_PRIVATE inline IPluginRegistry* getPluginRegistry() noexcept
{
    return &detail::libraryRegistry();
}

DOVETAIL_PRIVATE inline IPluginRegistry* getSafePluginRegistry() noexcept
{
    return &detail::safeLibraryRegistry();
}

DOVETAIL_PRIVATE inline ILogger* getLogger() noexcept
{
    return &detail::hostLogger();
}

// Registers one creator while the library is loaded.
template <typename T>
class PluginRegistrar
{
public:
    PluginRegistrar() { getPluginRegistry()->registerCreator(mCreator, ""); }

private:
    T mCreator{};
};

template <typename T>
class SafePluginRegistrar
{
public:
    SafePluginRegistrar() { getSafePluginRegistry()->registerCreator(mCreator, ""); }

private:
    T mCreator{};
};

} // namespace dovetail

#define REGISTER_TENSORRT_PLUGIN(name) static ::dovetail::PluginRegistrar<name> pluginRegistrar##name {}
#define REGISTER_SAFE_TENSORRT_PLUGIN(name) static ::dovetail::SafePluginRegistrar<name> safePluginRegistrar##name {}
