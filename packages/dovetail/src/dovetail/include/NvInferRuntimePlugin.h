// Forwards to Dovetail's interface under the name that existing plugins include.
#pragma once

#include "NvInferVersion.h"
#include "dovetail/shim.h"
