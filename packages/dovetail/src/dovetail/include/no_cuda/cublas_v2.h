// A stand-in for cuBLAS on machines without it: the handle, which is never made.
#pragma once

typedef struct cublasContext* cublasHandle_t;

enum cublasStatus_t
{
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
