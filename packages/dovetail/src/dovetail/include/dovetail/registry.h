// Loggers, and the registry that a plugin library registers its creators with.
#pragma once

#include "plugin_v2.h"

namespace nvinfer1
{
inline namespace dovetail_v1
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
    // Registers a creator for the process: in Dovetail's plugin registry and in this one of every other library. While
    // Dovetail loads the library, the creator is registered in the registry that loads it instead. False if a creator
    // of the same name, version and namespace is registered.
    virtual bool registerCreator(IPluginCreatorInterface& creator, AsciiChar const* pluginNamespace) noexcept = 0;
    virtual bool deregisterCreator(IPluginCreatorInterface const& creator) noexcept = 0;
    virtual IPluginCreatorInterface* const* getAllCreators(int32_t* numCreators) const noexcept = 0;
    // The creators of older plugins among them.
    virtual IPluginCreator* const* getPluginCreatorList(int32_t* numCreators) const noexcept = 0;
    virtual IPluginCreator* getPluginCreator(AsciiChar const* pluginName, AsciiChar const* pluginVersion,
        AsciiChar const* pluginNamespace = "") noexcept
        = 0;
    // A C++ creator of the process or of this library, or null.
    virtual IPluginCreatorInterface* getCreator(AsciiChar const* pluginName, AsciiChar const* pluginVersion,
        AsciiChar const* pluginNamespace = "") noexcept
        = 0;
    // The resources of Dovetail's global registry, which all libraries and Python plugins share.
    virtual IPluginResource* acquirePluginResource(AsciiChar const* key, IPluginResource* resource) noexcept = 0;
    virtual int32_t releasePluginResource(AsciiChar const* key) noexcept = 0;
    // The same as getAllCreators: this registry has no parent.
    virtual IPluginCreatorInterface* const* getAllCreatorsRecursive(int32_t* numCreators) noexcept = 0;
    virtual bool isParentSearchEnabled() const noexcept = 0;
    virtual void setParentSearchEnabled(bool enabled) noexcept = 0;
    // Kept for whoever asks; what goes wrong is told to Dovetail's own.
    virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
    virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

protected:
    virtual ~IPluginRegistry() noexcept = default;
};

} // namespace dovetail_v1
} // namespace nvinfer1
