// A plugin that is slow, checks that it is alive while it runs, and uses its host at every point of the process's end.
#include "example_plugin.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

using namespace nvinfer1;

namespace
{

std::atomic<bool> gIsChatty{false};
std::atomic<bool> gAllocates{false};
std::atomic<bool> gUsesHostAtEnd{false};

void say(char const* text)
{
    getLogger()->log(ILogger::Severity::kVERBOSE, text);
}

class Shared : public IPluginResource
{
public:
    int32_t release() override { return 0; }
    IPluginResource* clone() override { return new Shared; }
};

class SlowPlugin : public ExamplePlugin<SlowPlugin>
{
public:
    static constexpr char const* kNAME = "Slow";
    static constexpr int32_t kALIVE = 0x600d;
    static SlowPlugin* create(PluginFieldCollection const&) { return new SlowPlugin{}; }
    static std::vector<PluginField> fieldNames() { return {}; }
    std::vector<PluginField> fields() const { return {}; }

    SlowPlugin() = default;
    SlowPlugin(SlowPlugin const& other) = default;
    ~SlowPlugin() override
    {
        mState = 0xdead;
        say("a plugin is destroyed");
    }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder&) noexcept override
    {
        work(1);
        outputs[0] = inputs[0];
        return 0;
    }
    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        work(1);
        return inOut[pos].desc.format == PluginFormat::kLINEAR && inOut[pos].desc.type == DataType::kFLOAT;
    }
    IPluginV3* attachToContext(IPluginResourceContext* context) noexcept override
    {
        auto* twin = new SlowPlugin{*this};
        twin->mContext = context;
        return twin;
    }
    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t) noexcept override
    {
        work(10);
        if (gAllocates && mContext)
        {
            IGpuAllocator* const allocator = mContext->getGpuAllocator();
            if (void* memory = allocator->allocate(256, 64, 0))
            {
                allocator->deallocate(memory);
            }
        }
        int64_t count = 1;
        for (int32_t i = 0; i < inputDesc[0].dims.nbDims; ++i)
        {
            count *= inputDesc[0].dims.d[i];
        }
        for (int64_t i = 0; i < count; ++i)
        {
            static_cast<float*>(outputs[0])[i] = static_cast<float const*>(inputs[0])[i] + 1;
        }
        return 0;
    }

private:
    void work(int32_t steps) const
    {
        for (int32_t i = 0; i < steps; ++i)
        {
            std::this_thread::sleep_for(std::chrono::microseconds(300));
            if (mState != kALIVE)
            {
                std::abort(); // it was destroyed while it ran
            }
            if (gIsChatty)
            {
                say("a plugin works");
            }
        }
    }

    int32_t volatile mState{kALIVE};
    IPluginResourceContext* mContext{nullptr};
};

using SlowCreator = ExampleCreator<SlowPlugin>;

// Uses the host while static objects are destroyed, which is after Python has ended.
struct AtEnd
{
    ~AtEnd()
    {
        if (gUsesHostAtEnd)
        {
            Shared resource;
            int32_t count = 0;
            say("the library ends");
            getPluginRegistry()->acquirePluginResource("late", &resource);
            getPluginRegistry()->releasePluginResource("held");
            getPluginRegistry()->getAllCreators(&count);
            getPluginRegistry()->getCreator("Slow", "1", "");
        }
    }
};
AtEnd gAtEndFirst;

} // namespace

REGISTER_TENSORRT_PLUGIN(SlowCreator);

namespace
{
AtEnd gAtEndLast;
}

extern "C" TENSORRTAPI void makeChatty()
{
    gIsChatty = true;
}

extern "C" TENSORRTAPI void makeAllocate()
{
    gAllocates = true;
}

extern "C" TENSORRTAPI void useHostAtEnd()
{
    Shared resource;
    getPluginRegistry()->acquirePluginResource("held", &resource);
    gUsesHostAtEnd = true;
}

// A thread of the library that logs until the process is gone.
extern "C" TENSORRTAPI void startThread(int32_t microseconds)
{
    std::thread([microseconds]() noexcept {
        for (;;)
        {
            say("a thread works");
            std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
        }
    }).detach();
}
