// Values at their limits: dimensions that are computed from constants of 64 bits, fields without data, and a V2 plugin
// that serializes more bytes than a field can hold.
#include <NvInfer.h>

#include <cstring>
#include <vector>

using namespace nvinfer1;

namespace
{

int64_t gNoneData{-1}, gNoneLength{-1};

// Copies its input; its output has the shape (operation(a, b), a, b) where it is asked for shapes without inputs.
class Arithmetic : public IPluginV3, public IPluginV3OneCore, public IPluginV3OneBuild, public IPluginV3OneRuntime
{
public:
    Arithmetic(int32_t operation, int64_t a, int64_t b)
        : mOperation{operation}
        , mA{a}
        , mB{b}
    {
    }
    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override
    {
        switch (type)
        {
        case PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
        case PluginCapabilityType::kBUILD: return static_cast<IPluginV3OneBuild*>(this);
        case PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
        }
        return nullptr;
    }
    IPluginV3* clone() noexcept override { return new Arithmetic{mOperation, mA, mB}; }
    char const* getPluginName() const noexcept override { return "Arithmetic"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    char const* getPluginNamespace() const noexcept override { return ""; }
    int32_t getNbOutputs() const noexcept override { return 1; }
    int32_t getOutputDataTypes(DataType* outputs, int32_t, DataType const*, int32_t) const noexcept override
    {
        outputs[0] = DataType::kFLOAT;
        return 0;
    }
    int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const*, int32_t, DimsExprs* outputs,
        int32_t, IExprBuilder& builder) noexcept override
    {
        if (nbInputs)
        {
            outputs[0] = inputs[0];
            return 0;
        }
        auto const *a = builder.constant(mA), *b = builder.constant(mB);
        outputs[0].nbDims = 3;
        outputs[0].d[0] = builder.operation(static_cast<DimensionOperation>(mOperation), *a, *b);
        outputs[0].d[1] = a;
        outputs[0].d[2] = b;
        return 0;
    }
    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        return inOut[pos].desc.format == TensorFormat::kLINEAR;
    }
    int32_t configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) noexcept override
    {
        return 0;
    }
    int32_t onShapeChange(PluginTensorDesc const* in, int32_t, PluginTensorDesc const*, int32_t) noexcept override
    {
        mCount = 1;
        for (int32_t i = 0; i < in[0].dims.nbDims; ++i)
        {
            mCount *= in[0].dims.d[i];
        }
        return 0;
    }
    int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const* inputs, void* const* outputs,
        void*, cudaStream_t) noexcept override
    {
        std::memcpy(outputs[0], inputs[0], static_cast<size_t>(mCount) * sizeof(float));
        return 0;
    }
    IPluginV3* attachToContext(IPluginResourceContext*) noexcept override { return clone(); }
    PluginFieldCollection const* getFieldsToSerialize() noexcept override
    {
        mStored = {{"operation", &mOperation, PluginFieldType::kINT32, 1}, {"a", &mA, PluginFieldType::kINT64, 1},
            {"b", &mB, PluginFieldType::kINT64, 1}, {"none", nullptr, PluginFieldType::kFLOAT32, 0}};
        mFields = {static_cast<int32_t>(mStored.size()), mStored.data()};
        return &mFields;
    }

private:
    int32_t mOperation;
    int64_t mA, mB, mCount{0};
    std::vector<PluginField> mStored;
    PluginFieldCollection mFields;
};

class ArithmeticCreator : public IPluginCreatorV3One
{
public:
    char const* getPluginName() const noexcept override { return "Arithmetic"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    char const* getPluginNamespace() const noexcept override { return ""; }
    PluginFieldCollection const* getFieldNames() noexcept override { return &mFields; }
    IPluginV3* createPlugin(char const*, PluginFieldCollection const* fc, TensorRTPhase) noexcept override
    {
        int32_t operation = 0;
        int64_t a = 0, b = 0;
        for (int32_t i = 0; i < fc->nbFields; ++i)
        {
            auto const& field = fc->fields[i];
            if (std::strcmp(field.name, "none") == 0)
            {
                gNoneData = field.data != nullptr;
                gNoneLength = field.length;
            }
            else if (std::strcmp(field.name, "operation") == 0)
            {
                operation = *static_cast<int32_t const*>(field.data);
            }
            else
            {
                (*field.name == 'a' ? a : b) = *static_cast<int64_t const*>(field.data);
            }
        }
        return new Arithmetic{operation, a, b};
    }

private:
    PluginField mNames[4]{{"operation", nullptr, PluginFieldType::kINT32, 1}, {"a", nullptr, PluginFieldType::kINT64, 1},
        {"b", nullptr, PluginFieldType::kINT64, 1}, {"none", nullptr, PluginFieldType::kFLOAT32, 1}};
    PluginFieldCollection mFields{4, mNames};
};

size_t gSerializationSize{0};

class Large : public IPluginV2DynamicExt
{
public:
    char const* getPluginType() const noexcept override { return "Large"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    int32_t getNbOutputs() const noexcept override { return 1; }
    int32_t initialize() noexcept override { return 0; }
    void terminate() noexcept override {}
    size_t getSerializationSize() const noexcept override { return gSerializationSize; }
    void serialize(void* buffer) const noexcept override { std::memset(buffer, 1, gSerializationSize); }
    void destroy() noexcept override { delete this; }
    IPluginV2DynamicExt* clone() const noexcept override { return new Large; }
    void setPluginNamespace(char const*) noexcept override {}
    char const* getPluginNamespace() const noexcept override { return ""; }
    DataType getOutputDataType(int32_t, DataType const* inputTypes, int32_t) const noexcept override
    {
        return inputTypes[0];
    }
    DimsExprs getOutputDimensions(int32_t, DimsExprs const* inputs, int32_t, IExprBuilder&) noexcept override
    {
        return inputs[0];
    }
    bool supportsFormatCombination(int32_t, PluginTensorDesc const*, int32_t, int32_t) noexcept override { return true; }
    void configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) noexcept override
    {
    }
    size_t getWorkspaceSize(
        PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) const noexcept override
    {
        return 0;
    }
    int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const*, void* const*, void*,
        cudaStream_t) noexcept override
    {
        return 0;
    }
};

class LargeCreator : public IPluginCreator
{
public:
    char const* getPluginName() const noexcept override { return "Large"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    PluginFieldCollection const* getFieldNames() noexcept override { return nullptr; }
    IPluginV2* createPlugin(char const*, PluginFieldCollection const*) noexcept override { return new Large; }
    IPluginV2* deserializePlugin(char const*, void const*, size_t) noexcept override { return new Large; }
    void setPluginNamespace(char const*) noexcept override {}
    char const* getPluginNamespace() const noexcept override { return ""; }
};

} // namespace

extern "C" TENSORRTAPI void setSerializationSize(uint64_t size)
{
    gSerializationSize = static_cast<size_t>(size);
}

// Whether the field "none" of the last createPlugin had data, and its length; -1 before there was one.
extern "C" TENSORRTAPI int64_t noneData()
{
    return gNoneData;
}

extern "C" TENSORRTAPI int64_t noneLength()
{
    return gNoneLength;
}

extern "C" TENSORRTAPI IPluginCreatorInterface* const* getCreators(int32_t& nbCreators)
{
    static ArithmeticCreator arithmetic;
    static LargeCreator large;
    static IPluginCreatorInterface* const creators[]{&arithmetic, &large};
    nbCreators = 2;
    return creators;
}
