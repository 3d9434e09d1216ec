// Forwards to Dovetail's interface under the name that existing plugins include.
#pragma once

#include "NvInfer.h"
