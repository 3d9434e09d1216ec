// Forwards to Dovetail's interface under the name that existing plugins include.
#pragma once

#include "NvInferVersion.h"
#include "dovetail/shim.h"

namespace nvinfer1
{
using namespace ::dovetail;
} // namespace nvinfer1
