// A custom layer in C++ whose weights are kept once, however many layers and contexts use them.
//
// Y is X times the weights, which repeat along the last dimension. The weights are a resource of the plugin
// registry: whoever needs them first has them copied to memory of the device, and the last one to let go frees it.
#include "example_plugin.h"

#include <cinttypes>
#include <cstdio>
#include <string>
#include <utility>

using namespace nvinfer1;

namespace
{

// The registry keeps a clone, so the memory is taken in clone() and not in the constructor.
class SharedWeights : public IPluginResource
{
public:
    explicit SharedWeights(std::vector<float> const& host)
        : mHost{host}
    {
    }

    ~SharedWeights() override { release(); }

    IPluginResource* clone() noexcept override
    {
        auto* twin = new SharedWeights{mHost};
        size_t const bytes = mHost.size() * sizeof(float);
        void* memory{nullptr};
        if (cudaMalloc(&memory, bytes) != cudaSuccess
            || cudaMemcpy(memory, mHost.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess)
        {
            delete twin;
            return nullptr;
        }
        twin->mDevice = static_cast<float*>(memory);
        return twin;
    }

    int32_t release() noexcept override
    {
        auto const status = mDevice ? cudaFree(mDevice) : cudaSuccess;
        mDevice = nullptr;
        return status == cudaSuccess ? 0 : -1;
    }

    float const* values() const noexcept { return mDevice; }

private:
    std::vector<float> mHost;
    float* mDevice{nullptr};
};

// Weights with the same contents have the same key.
std::string makeKey(std::vector<float> const& weights)
{
    uint64_t hash = 14695981039346656037ULL;
    auto const* bytes = reinterpret_cast<unsigned char const*>(weights.data());
    for (size_t i = 0; i < weights.size() * sizeof(float); ++i)
    {
        hash = (hash ^ bytes[i]) * 1099511628211ULL;
    }
    char text[64];
    std::snprintf(text, sizeof(text), "SharedWeights:%zu:%016" PRIx64, weights.size(), hash);
    return text;
}

class WeighPlugin : public ExamplePlugin<WeighPlugin>
{
public:
    static constexpr char const* kNAME = "Weigh";

    explicit WeighPlugin(std::vector<float> weights)
        : mWeights{std::move(weights)}
    {
    }

    // A copy holds nothing: it acquires the weights when it is attached to a context.
    WeighPlugin(WeighPlugin const& other)
        : WeighPlugin{other.mWeights}
    {
    }

    ~WeighPlugin() override
    {
        if (mShared)
        {
            getPluginRegistry()->releasePluginResource(mKey.c_str());
        }
    }

    static WeighPlugin* create(PluginFieldCollection const& fc)
    {
        for (int32_t i = 0; i < fc.nbFields; ++i)
        {
            PluginField const& field = fc.fields[i];
            bool const isWeights = !std::strcmp(field.name, "weights") && field.type == PluginFieldType::kFLOAT32;
            if (isWeights && field.data && field.length > 0)
            {
                auto const* first = static_cast<float const*>(field.data);
                return new WeighPlugin{{first, first + field.length}};
            }
        }
        return nullptr;
    }

    static std::vector<PluginField> fieldNames() { return {{"weights", nullptr, PluginFieldType::kFLOAT32, 1}}; }

    std::vector<PluginField> fields() const
    {
        return {{"weights", mWeights.data(), PluginFieldType::kFLOAT32, static_cast<int32_t>(mWeights.size())}};
    }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const*, int32_t, DimsExprs* outputs,
        int32_t, IExprBuilder&) noexcept override
    {
        if (nbInputs != 1 || inputs[0].nbDims < 1)
        {
            return 1;
        }
        outputs[0] = inputs[0];
        return 0;
    }

    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        return inOut[pos].desc.format == PluginFormat::kLINEAR && inOut[pos].desc.type == DataType::kFLOAT;
    }

    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t) noexcept override
    {
        if (!mShared)
        {
            return 1;
        }
        auto const* x = static_cast<float const*>(inputs[0]);
        auto* y = static_cast<float*>(outputs[0]);
        auto const& dims = inputDesc[0].dims;
        int64_t const last = dims.d[dims.nbDims - 1], number = static_cast<int64_t>(mWeights.size());
        int64_t count = 1;
        for (int32_t i = 0; i < dims.nbDims; ++i)
        {
            count *= dims.d[i];
        }
        for (int64_t i = 0; i < count; ++i)
        {
            y[i] = x[i] * mShared->values()[i % last % number];
        }
        return 0;
    }

    IPluginV3* attachToContext(IPluginResourceContext*) noexcept override
    {
        auto* twin = new WeighPlugin{mWeights};
        SharedWeights mine{mWeights};
        twin->mKey = makeKey(mWeights);
        auto* shared = getPluginRegistry()->acquirePluginResource(twin->mKey.c_str(), &mine);
        twin->mShared = static_cast<SharedWeights*>(shared);
        if (!shared)
        {
            delete twin;
            return nullptr;
        }
        return twin;
    }

private:
    std::vector<float> mWeights;
    std::string mKey;
    SharedWeights* mShared{nullptr};
};

using WeighCreator = ExampleCreator<WeighPlugin>;

} // namespace

REGISTER_TENSORRT_PLUGIN(WeighCreator);
