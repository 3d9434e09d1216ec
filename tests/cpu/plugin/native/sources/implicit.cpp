// Plugins of the three interfaces that never see the batch, with the constructs that existing sources use: plugins add
// to each element the number of its place in the batch.
#include <NvInferPlugin.h>
#include <NvInferPluginBase.h>
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <cstring>
#include <string>
#include <vector>

namespace nvinfer1
{
namespace plugin
{

// Sizes of before version 10 are plain integers.
#if NV_TENSORRT_MAJOR < 10
inline int const* sizesOf(Dims const& dims) { return dims.d; }
#else
inline int64_t const* sizesOf(Dims const& dims) { return dims.d; }
#endif

inline int64_t volume(Dims const& dims)
{
    int64_t product = 1;
    for (int i = 0; i < dims.nbDims; ++i)
    {
        product *= sizesOf(dims)[i];
    }
    return product;
}

// What is the same in all three.
template <typename Base, typename Self>
class TRT_DEPRECATED Numbered : public Base
{
public:
    int getNbOutputs() const noexcept override { return 1; }
    Dims getOutputDimensions(int index, Dims const* inputs, int nbInputDims) noexcept override
    {
        return index == 0 && nbInputDims == 1 ? inputs[0] : Dims{};
    }
    int initialize() noexcept override
    {
        mIsReady = true;
        return 0;
    }
    void terminate() noexcept override { mIsReady = false; }
    size_t getWorkspaceSize(int maxBatchSize) const noexcept override { return static_cast<size_t>(maxBatchSize) * 8; }
    size_t getSerializationSize() const noexcept override { return sizeof(mVolume); }
    void serialize(void* buffer) const noexcept override { std::memcpy(buffer, &mVolume, sizeof(mVolume)); }
    void destroy() noexcept override { delete this; }
    char const* getPluginType() const noexcept override { return Self::kNAME; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    void setPluginNamespace(char const* place) noexcept override { mNamespace = place; }
    char const* getPluginNamespace() const noexcept override { return mNamespace.c_str(); }
    Self* copy() const
    {
        auto* twin = new Self{};
        twin->mVolume = mVolume;
        twin->mIsReady = mIsReady;
        twin->mNamespace = mNamespace;
        return twin;
    }

protected:
    int run(int batchSize, void const* const* inputs, void* const* outputs, void* workspace)
    {
        for (int64_t i = 0; i < batchSize * mVolume; ++i)
        {
            auto const number = static_cast<float>(i / mVolume);
            static_cast<float*>(outputs[0])[i] = static_cast<float const*>(inputs[0])[i] + number;
        }
        return mIsReady && (workspace || !batchSize) ? 0 : 1;
    }

    int64_t mVolume{0};
    bool mIsReady{false};
    std::string mNamespace;

    template <typename T>
    friend class NumberedCreator;
};

// One type and format for all; enqueue as before version 8.
class OneType : public Numbered<IPluginV2, OneType>
{
public:
    static constexpr char const* kNAME = "OneType";
    bool supportsFormat(DataType type, PluginFormat format) const noexcept override
    {
        return type == DataType::kFLOAT && format == PluginFormat::kLINEAR;
    }
    void configureWithFormat(Dims const* inputDims, int, Dims const*, int, DataType, PluginFormat, int) noexcept override
    {
        mVolume = volume(inputDims[0]);
    }
    int enqueue(int batchSize, void const* const* inputs, void** outputs, void* workspace, cudaStream_t) override
    {
        return run(batchSize, inputs, outputs, workspace);
    }
    IPluginV2* clone() const noexcept override { return copy(); }
};

class Extended : public Numbered<IPluginV2Ext, Extended>
{
public:
    static constexpr char const* kNAME = "Extended";
    bool supportsFormat(DataType type, PluginFormat format) const noexcept override
    {
        return type == DataType::kFLOAT && format == PluginFormat::kLINEAR;
    }
    DataType getOutputDataType(int, DataType const* inputTypes, int) const noexcept override { return inputTypes[0]; }
    bool isOutputBroadcastAcrossBatch(int, bool const*, int) const noexcept override { return false; }
    bool canBroadcastInputAcrossBatch(int) const noexcept override { return false; }
    void configurePlugin(Dims const* inputDims, int, Dims const*, int, DataType const* inputTypes, DataType const*,
        bool const* inputIsBroadcast, bool const*, PluginFormat floatFormat, int maxBatchSize) noexcept override
    {
        bool const isFine = inputTypes[0] == DataType::kFLOAT && !inputIsBroadcast[0]
            && floatFormat == PluginFormat::kLINEAR && maxBatchSize > 0;
        mVolume = isFine ? volume(inputDims[0]) : 0;
    }
    int enqueue(int batchSize, void const* const* inputs, void* const* outputs, void* workspace,
        cudaStream_t) noexcept override
    {
        return run(batchSize, inputs, outputs, workspace);
    }
    IPluginV2Ext* clone() const noexcept override { return copy(); }
    void attachToContext(
        cudnnContext* cudnnContext, cublasContext* cublasContext, IGpuAllocator* allocator) noexcept override
    {
        mIsReady = mIsReady && !cudnnContext && !cublasContext && allocator;
    }

private:
    using IPluginV2::enqueue;
};

class InOut : public Numbered<IPluginV2IOExt, InOut>
{
public:
    static constexpr char const* kNAME = "InOut";
    bool supportsFormatCombination(int pos, PluginTensorDesc const* inOut, int, int) const noexcept override
    {
        return inOut[pos].type == DataType::kFLOAT && inOut[pos].format == TensorFormat::kLINEAR;
    }
    auto getOutputDataType(int, DataType const* inputTypes, int) const noexcept -> DataType override
    {
        return inputTypes[0];
    }
    bool isOutputBroadcastAcrossBatch(int, bool const*, int) const noexcept override { return false; }
    bool canBroadcastInputAcrossBatch(int) const noexcept override { return false; }
    void configurePlugin(PluginTensorDesc const* in, int, PluginTensorDesc const*, int) noexcept override
    {
        mVolume = volume(in[0].dims);
    }
    int enqueue(int batchSize, void const* const* inputs, void* const* outputs, void* workspace,
        cudaStream_t) noexcept override
    {
        return run(batchSize, inputs, outputs, workspace);
    }
    IPluginV2IOExt* clone() const noexcept override { return copy(); }

protected:
    using IPluginV2Ext::configurePlugin;
    using IPluginV2IOExt::supportsFormat;
};

template <typename Plugin>
class NumberedCreator : public IPluginCreator
{
public:
    char const* getPluginName() const noexcept override { return Plugin::kNAME; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    PluginFieldCollection const* getFieldNames() noexcept override { return nullptr; }
    Plugin* createPlugin(char const*, PluginFieldCollection const*) noexcept override { return new Plugin{}; }
    Plugin* deserializePlugin(char const*, void const* data, size_t length) noexcept override
    {
        auto* made = new Plugin{};
        std::memcpy(&made->mVolume, data, length);
        return made;
    }
    void setPluginNamespace(char const* place) noexcept override { mNamespace = place; }
    char const* getPluginNamespace() const noexcept override { return mNamespace.c_str(); }

private:
    std::string mNamespace;
};

using OneTypeCreator = NumberedCreator<OneType>;
using ExtendedCreator = NumberedCreator<Extended>;
using InOutCreator = NumberedCreator<InOut>;
REGISTER_TENSORRT_PLUGIN(OneTypeCreator);
REGISTER_TENSORRT_PLUGIN(ExtendedCreator);

} // namespace plugin
} // namespace nvinfer1

static_assert(nvinfer1::EnumMax<nvinfer1::DataType>() == 12);
static_assert(sizeof(nvinfer1::plugin::NMSParameters) > 0 && sizeof(half) == 2);

// The registry and its macro are used from any namespace.
namespace elsewhere
{
using nvinfer1::plugin::InOutCreator;
REGISTER_TENSORRT_PLUGIN(InOutCreator);
} // namespace elsewhere

extern "C" TENSORRTAPI int32_t countOlderCreators()
{
    int32_t count = 0;
    getPluginRegistry()->getPluginCreatorList(&count);
    return getPluginRegistry()->getPluginCreator("InOut", "1") ? count : -1;
}
