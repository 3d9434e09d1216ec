// A plugin of the older interface: multiplies by a factor that it keeps in its serialized form.
#include <NvInfer.h>

#include <cstring>
#include <string>

using namespace nvinfer1;

namespace
{

class Scale : public IPluginV2DynamicExt
{
public:
    explicit Scale(float factor)
        : mFactor{factor}
    {
    }

    char const* getPluginType() const noexcept override { return "Scale"; }
    char const* getPluginVersion() const noexcept override { return "2"; }
    int32_t getNbOutputs() const noexcept override { return 1; }
    int32_t initialize() noexcept override
    {
        mIsReady = true;
        return 0;
    }
    void terminate() noexcept override { mIsReady = false; }
    size_t getSerializationSize() const noexcept override { return sizeof(mFactor); }
    void serialize(void* buffer) const noexcept override { std::memcpy(buffer, &mFactor, sizeof(mFactor)); }
    void destroy() noexcept override { delete this; }
    IPluginV2DynamicExt* clone() const noexcept override
    {
#ifdef CLONES_ITSELF
        return const_cast<Scale*>(this);
#endif
        auto* twin = new Scale{mFactor};
        twin->setPluginNamespace(mNamespace.c_str());
        twin->mIsReady = mIsReady;
        return twin;
    }
    void setPluginNamespace(char const* place) noexcept override { mNamespace = place; }
    char const* getPluginNamespace() const noexcept override { return mNamespace.c_str(); }
    DataType getOutputDataType(int32_t, DataType const* inputTypes, int32_t) const noexcept override
    {
        return inputTypes[0];
    }
    DimsExprs getOutputDimensions(int32_t, DimsExprs const* inputs, int32_t, IExprBuilder&) noexcept override
    {
        return inputs[0];
    }
    bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        return inOut[pos].type == DataType::kFLOAT && inOut[pos].format == TensorFormat::kLINEAR;
    }
    void configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) noexcept override
    {
    }
    size_t getWorkspaceSize(
        PluginTensorDesc const* inputs, int32_t, PluginTensorDesc const*, int32_t) const noexcept override
    {
        return inputs[0].dims.d[0] > 0 ? 16 : 0;
    }
    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void* workspace, cudaStream_t) noexcept override
    {
        int64_t count = 1;
        for (int32_t i = 0; i < inputDesc[0].dims.nbDims; ++i)
        {
            count *= inputDesc[0].dims.d[i];
        }
        for (int64_t i = 0; i < count; ++i)
        {
            static_cast<float*>(outputs[0])[i] = mFactor * static_cast<float const*>(inputs[0])[i];
        }
        return mIsReady && workspace ? 0 : 1;
    }

private:
    float mFactor;
    bool mIsReady{false};
    std::string mNamespace;
};

class ScaleCreator : public IPluginCreator
{
public:
    char const* getPluginName() const noexcept override { return "Scale"; }
    char const* getPluginVersion() const noexcept override { return "2"; }
    PluginFieldCollection const* getFieldNames() noexcept override { return &mFields; }
    IPluginV2* createPlugin(char const*, PluginFieldCollection const* fc) noexcept override
    {
        return new Scale{fc->nbFields ? *static_cast<float const*>(fc->fields[0].data) : 2.0F};
    }
    IPluginV2* deserializePlugin(char const*, void const* data, size_t length) noexcept override
    {
        float factor{};
#ifdef DESERIALIZES_NULL
        return nullptr;
#endif
        if (length != sizeof(factor))
        {
            return nullptr;
        }
        std::memcpy(&factor, data, sizeof(factor));
        return new Scale{factor};
    }
    void setPluginNamespace(char const* place) noexcept override { mNamespace = place; }
    char const* getPluginNamespace() const noexcept override { return mNamespace.c_str(); }

private:
    std::string mNamespace;
    PluginField mField{"factor", nullptr, PluginFieldType::kFLOAT32, 1};
    PluginFieldCollection mFields{1, &mField};
};

} // namespace

REGISTER_TENSORRT_PLUGIN(ScaleCreator);
