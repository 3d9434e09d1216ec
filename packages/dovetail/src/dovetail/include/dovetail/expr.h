// Dimension expressions: what getOutputShapes computes with.
#pragma once

#include "types.h"

namespace nvinfer1
{
inline namespace dovetail_v1
{

class IDimensionExpr
{
public:
    virtual bool isConstant() const noexcept = 0;
    // The value, or the smallest int64 where it is not known.
    virtual int64_t getConstantValue() const noexcept = 0;
    virtual bool isSizeTensor() const noexcept = 0;

protected:
    IDimensionExpr() = default;
    virtual ~IDimensionExpr() = default;
};

class IExprBuilder
{
public:
    virtual IDimensionExpr const* constant(int64_t value) noexcept = 0;
    // Null where the operation does not exist or an operand is a size tensor.
    virtual IDimensionExpr const* operation(
        DimensionOperation op, IDimensionExpr const& first, IDimensionExpr const& second) noexcept
        = 0;
    virtual IDimensionExpr const* declareSizeTensor(
        int32_t outputIndex, IDimensionExpr const& opt, IDimensionExpr const& upper) noexcept
        = 0;

protected:
    IExprBuilder() = default;
    virtual ~IExprBuilder() = default;
};

class DimsExprs
{
public:
    int32_t nbDims;
    IDimensionExpr const* d[Dims::MAX_DIMS];
};

} // namespace dovetail_v1
} // namespace nvinfer1
