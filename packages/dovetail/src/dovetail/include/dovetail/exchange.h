// The expressions of one call of getOutputShapes, in the form that crosses the binary interface.
#pragma once

#include "abi.h"
#include "expr.h"
#include "refuse.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <limits>
#include <stdexcept>
#include <vector>

namespace dovetail
{
using namespace nvinfer1;

namespace detail
{

class DOVETAIL_PRIVATE ExchangedExpr final : public IDimensionExpr
{
public:
    ExchangedExpr(dovetail_expr const& record, int32_t index) noexcept
        : mRecord(record)
        , mIndex(index)
    {
    }

    bool isConstant() const noexcept override { return mRecord.kind == DOVETAIL_EXPR_CONSTANT; }
    int64_t getConstantValue() const noexcept override
    {
        return isConstant() ? mRecord.value : std::numeric_limits<int64_t>::min();
    }
    bool isSizeTensor() const noexcept override { return mRecord.kind == DOVETAIL_EXPR_SIZE_TENSOR; }

    dovetail_expr const& record() const noexcept { return mRecord; }
    int32_t index() const noexcept { return mIndex; }

private:
    dovetail_expr mRecord;
    int32_t mIndex;
};

// The result of an operation on constants.
enum class Folded
{
    kVALUE,
    kUNDEFINED, // division by zero
    kOVERFLOW,  // the value needs more than 64 bits
};

// Rounds towards minus infinity, or towards infinity for the ceiling.
inline Folded divide(int64_t a, int64_t b, bool isCeiling, int64_t& value) noexcept
{
    if (b == 0)
    {
        return Folded::kUNDEFINED;
    }
    if (b == -1) // the smallest integer divided by it traps
    {
        return __builtin_sub_overflow(int64_t{0}, a, &value) ? Folded::kOVERFLOW : Folded::kVALUE;
    }
    int64_t const rest = a % b;
    bool const isBelow = (rest < 0) != (b < 0); // the quotient was rounded up to get here
    value = a / b + (rest == 0 ? 0 : isCeiling ? !isBelow : -static_cast<int64_t>(isBelow));
    return Folded::kVALUE;
}

inline Folded fold(DimensionOperation op, int64_t a, int64_t b, int64_t& value) noexcept
{
    auto const unless = [](bool overflows) { return overflows ? Folded::kOVERFLOW : Folded::kVALUE; };
    switch (op)
    {
    case DimensionOperation::kSUM: return unless(__builtin_add_overflow(a, b, &value));
    case DimensionOperation::kPROD: return unless(__builtin_mul_overflow(a, b, &value));
    case DimensionOperation::kMAX: value = std::max(a, b); return Folded::kVALUE;
    case DimensionOperation::kMIN: value = std::min(a, b); return Folded::kVALUE;
    case DimensionOperation::kSUB: return unless(__builtin_sub_overflow(a, b, &value));
    case DimensionOperation::kEQUAL: value = a == b; return Folded::kVALUE;
    case DimensionOperation::kLESS: value = a < b; return Folded::kVALUE;
    case DimensionOperation::kFLOOR_DIV: return divide(a, b, false, value);
    case DimensionOperation::kCEIL_DIV: return divide(a, b, true, value);
    }
    return Folded::kUNDEFINED;
}

// The name of an operation in messages.
inline char const* nameOf(DimensionOperation op) noexcept
{
    constexpr char const* names[]{
        "kSUM", "kPROD", "kMAX", "kMIN", "kSUB", "kEQUAL", "kLESS", "kFLOOR_DIV", "kCEIL_DIV"};
    return names[static_cast<size_t>(op)];
}

class DOVETAIL_PRIVATE ExchangedExprBuilder final : public IExprBuilder
{
public:
    ExchangedExprBuilder(dovetail_expr const* exprs, int32_t count)
    {
        for (int32_t i = 0; i < count; ++i)
        {
            add(exprs[i]);
        }
    }

    IDimensionExpr const* constant(int64_t value) noexcept override
    {
        return add({DOVETAIL_EXPR_CONSTANT, 0, 0, 0, value});
    }

    IDimensionExpr const* operation(
        DimensionOperation op, IDimensionExpr const& first, IDimensionExpr const& second) noexcept override
    {
        auto const number = static_cast<int32_t>(op);
        auto const *a = find(&first), *b = find(&second);
        bool const known = number >= 0 && number <= static_cast<int32_t>(DimensionOperation::kCEIL_DIV);
        if (!known || !a || !b || a->isSizeTensor() || b->isSizeTensor())
        {
            return nullptr;
        }
        if (a->isConstant() && b->isConstant())
        {
            int64_t const first64 = a->getConstantValue(), second64 = b->getConstantValue();
            int64_t value{};
            Folded const folded = fold(op, first64, second64, value);
            if (folded == Folded::kOVERFLOW)
            {
                keepOverflow(op, first64, second64);
            }
            if (folded != Folded::kUNDEFINED)
            {
                return constant(value);
            }
        }
        return add({DOVETAIL_EXPR_OPERATION, number, a->index(), b->index(), 0});
    }

    IDimensionExpr const* declareSizeTensor(
        int32_t outputIndex, IDimensionExpr const& opt, IDimensionExpr const& upper) noexcept override
    {
        auto const *a = find(&opt), *b = find(&upper);
        if (!a || !b || a->isSizeTensor() || b->isSizeTensor())
        {
            return nullptr;
        }
        return add({DOVETAIL_EXPR_SIZE_TENSOR, outputIndex, a->index(), b->index(), 0});
    }

    // Throws where an operation overflowed. `operation` cannot: plugins call it in methods that are noexcept.
    void requireNoOverflow() const
    {
        if (mOverflow[0])
        {
            throw std::overflow_error(mOverflow);
        }
    }

    // Tensors whose dimensions are expressions of this builder.
    std::vector<DimsExprs> unpack(dovetail_shapes const& shapes) const
    {
        std::vector<DimsExprs> unpacked(static_cast<size_t>(shapes.count), DimsExprs{});
        int32_t const* dim = shapes.dims;
        for (int32_t i = 0; i < shapes.count; ++i)
        {
            unpacked[i].nbDims = shapes.ranks[i];
            for (int32_t j = 0; j < shapes.ranks[i]; ++j)
            {
                unpacked[i].d[j] = &mExprs[static_cast<size_t>(*dim++)];
            }
        }
        return unpacked;
    }

    // The indices of a plugin's answer, checked to be expressions of this builder.
    void pack(std::vector<DimsExprs> const& shapes, std::vector<int32_t>& ranks, std::vector<int32_t>& dims) const
    {
        for (size_t i = 0; i < shapes.size(); ++i)
        {
            auto const output = static_cast<int32_t>(i);
            if (shapes[i].nbDims < 0 || shapes[i].nbDims > Dims::MAX_DIMS)
            {
                refuse("output %d was given no rank from 0 to 8: nbDims is %d", output, shapes[i].nbDims);
            }
            ranks.push_back(shapes[i].nbDims);
            for (int32_t j = 0; j < shapes[i].nbDims; ++j)
            {
                auto const* known = find(shapes[i].d[j]);
                if (!known)
                {
                    refuse("output %d, dimension %d is null, or no expression of this call", output, j);
                }
                dims.push_back(known->index());
            }
        }
    }

    std::vector<dovetail_expr> records() const
    {
        std::vector<dovetail_expr> records;
        for (ExchangedExpr const& expr : mExprs)
        {
            records.push_back(expr.record());
        }
        return records;
    }

private:
    void keepOverflow(DimensionOperation op, int64_t first, int64_t second) noexcept
    {
        if (!mOverflow[0])
        {
            std::snprintf(mOverflow, sizeof(mOverflow),
                "IExprBuilder::operation: %s of %" PRId64 " and %" PRId64 " does not fit into 64 bits", nameOf(op),
                first, second);
        }
    }

    IDimensionExpr const* add(dovetail_expr const& record)
    {
        mExprs.emplace_back(record, static_cast<int32_t>(mExprs.size()));
        return &mExprs.back();
    }

    // By address, because an expression of another call may be gone.
    ExchangedExpr const* find(IDimensionExpr const* expr) const noexcept
    {
        for (ExchangedExpr const& known : mExprs)
        {
            if (&known == expr)
            {
                return &known;
            }
        }
        return nullptr;
    }

    std::deque<ExchangedExpr> mExprs;
    char mOverflow[160]{};
};

} // namespace detail
} // namespace dovetail
