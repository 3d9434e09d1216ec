// A stand-in for cuDNN on machines without it: the handle, which is never made.
#pragma once

typedef struct cudnnContext* cudnnHandle_t;

enum cudnnStatus_t
{
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_NOT_INITIALIZED = 1,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
};
