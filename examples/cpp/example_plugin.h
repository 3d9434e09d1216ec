// What the plugins of these examples do in the same way: capabilities, clones, identity, and fields.
#pragma once

#include <NvInfer.h>

#include <cstring>
#include <vector>

// The value of a field, where the collection has one of this name, type and length; else the value stays as it is.
template <typename T>
void readField(nvinfer1::PluginFieldCollection const& fc, char const* name, nvinfer1::PluginFieldType type, T& value)
{
    for (int32_t i = 0; i < fc.nbFields; ++i)
    {
        nvinfer1::PluginField const& field = fc.fields[i];
        if (!std::strcmp(field.name, name) && field.type == type && field.length == 1 && field.data)
        {
            std::memcpy(&value, field.data, sizeof(T));
        }
    }
}

// The base of a plugin. It can be copied, and has:
//   static constexpr char const* kNAME;
//   static Plugin* create(PluginFieldCollection const&), null where a field is wrong;
//   static std::vector<PluginField> fieldNames();
//   std::vector<PluginField> fields() const, with addresses of its own members.
template <typename Plugin>
class ExamplePlugin : public nvinfer1::IPluginV3,
                      public nvinfer1::IPluginV3OneCore,
                      public nvinfer1::IPluginV3OneBuild,
                      public nvinfer1::IPluginV3OneRuntime
{
public:
    nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override
    {
        switch (type)
        {
        case nvinfer1::PluginCapabilityType::kCORE: return static_cast<nvinfer1::IPluginV3OneCore*>(this);
        case nvinfer1::PluginCapabilityType::kBUILD: return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
        case nvinfer1::PluginCapabilityType::kRUNTIME: return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
        }
        return nullptr;
    }

    nvinfer1::IPluginV3* clone() noexcept override { return new Plugin(self()); }

    char const* getPluginName() const noexcept override { return Plugin::kNAME; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    char const* getPluginNamespace() const noexcept override { return ""; }

    int32_t getNbOutputs() const noexcept override { return 1; }

    // One output of the type of the one input.
    int32_t getOutputDataTypes(nvinfer1::DataType* outputTypes, int32_t, nvinfer1::DataType const* inputTypes,
        int32_t nbInputs) const noexcept override
    {
        if (nbInputs != 1)
        {
            return 1;
        }
        outputTypes[0] = inputTypes[0];
        return 0;
    }

    int32_t configurePlugin(nvinfer1::DynamicPluginTensorDesc const*, int32_t,
        nvinfer1::DynamicPluginTensorDesc const*, int32_t) noexcept override
    {
        return 0;
    }

    int32_t onShapeChange(nvinfer1::PluginTensorDesc const*, int32_t, nvinfer1::PluginTensorDesc const*,
        int32_t) noexcept override
    {
        return 0;
    }

    nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext*) noexcept override { return clone(); }

    nvinfer1::PluginFieldCollection const* getFieldsToSerialize() noexcept override
    {
        mFields = self().fields();
        mCollection = {static_cast<int32_t>(mFields.size()), mFields.data()};
        return &mCollection;
    }

private:
    Plugin const& self() const noexcept { return static_cast<Plugin const&>(*this); }

    std::vector<nvinfer1::PluginField> mFields;
    nvinfer1::PluginFieldCollection mCollection{};
};

// The creator of a plugin with that base.
template <typename Plugin>
class ExampleCreator : public nvinfer1::IPluginCreatorV3One
{
public:
    char const* getPluginName() const noexcept override { return Plugin::kNAME; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    char const* getPluginNamespace() const noexcept override { return ""; }
    nvinfer1::PluginFieldCollection const* getFieldNames() noexcept override { return &mCollection; }

    nvinfer1::IPluginV3* createPlugin(
        char const*, nvinfer1::PluginFieldCollection const* fc, nvinfer1::TensorRTPhase) noexcept override
    {
        return Plugin::create(*fc);
    }

private:
    std::vector<nvinfer1::PluginField> mFields{Plugin::fieldNames()};
    nvinfer1::PluginFieldCollection mCollection{static_cast<int32_t>(mFields.size()), mFields.data()};
};
