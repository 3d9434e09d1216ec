// A library that registers creators by hand: one in a namespace of its own, one as safe.
#include <NvInferPlugin.h>

using namespace nvinfer1;

namespace nvinfer1
{
// Existing plugins reopen the namespace.
class EmptyCreator : public IPluginCreatorV3One
{
public:
    explicit EmptyCreator(char const* name)
        : mName{name}
    {
    }
    char const* getPluginName() const noexcept override { return mName; }
    char const* getPluginVersion() const noexcept override { return "3"; }
    char const* getPluginNamespace() const noexcept override { return ""; }
    PluginFieldCollection const* getFieldNames() noexcept override { return &mFields; }
    IPluginV3* createPlugin(char const*, PluginFieldCollection const*, TensorRTPhase) noexcept override
    {
        return nullptr;
    }

private:
    char const* mName;
    PluginFieldCollection mFields{};
};
} // namespace nvinfer1

class SafeCreator : public EmptyCreator
{
public:
    SafeCreator()
        : EmptyCreator{"Safe"}
    {
    }
};

REGISTER_SAFE_TENSORRT_PLUGIN(SafeCreator);

extern "C" TENSORRTAPI bool initLibNvInferPlugins(void* logger, char const*)
{
    static EmptyCreator creator{"Spaced"};
    static_cast<ILogger*>(logger)->log(ILogger::Severity::kWARNING, "initialised");
    bool const isFirst = getPluginRegistry()->getCreator("Spaced", "3", "acme") == nullptr;
    return !isFirst || getPluginRegistry()->registerCreator(creator, "acme");
}
