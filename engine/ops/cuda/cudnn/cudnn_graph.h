// cuDNN's backend API: graphs of operations, the engines that can run them, plans.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/ops/cuda/cudnn/cudnn_library.h"

namespace trimtab {

/// One backend descriptor. Its attributes are set, then it is finalized, once.
class CudnnDescriptor {
 public:
  /// `purpose` says in errors what this is: "multiply by the scale".
  CudnnDescriptor(cudnnBackendDescriptorType_t type, std::string purpose);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;

  /// T: int64_t, bool, void* (to data), cudnnHandle_t, or one of cuDNN's enumerations.
  template <typename T>
  void Set(cudnnBackendAttributeName_t name, const T& value) {
    SetRaw(name, TypeOf(value), 1, &value);
  }
  template <typename T, size_t kCount>
  void Set(cudnnBackendAttributeName_t name, const std::array<T, kCount>& values) {
    SetRaw(name, TypeOf(values[0]), static_cast<int64_t>(kCount), values.data());
  }
  template <typename T>
  void Set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    SetRaw(name, TypeOf(T()), static_cast<int64_t>(values.size()), values.data());
  }
  void Set(cudnnBackendAttributeName_t name, const std::string& text);
  void Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  void Set(cudnnBackendAttributeName_t name, const std::deque<CudnnDescriptor>& values);
  void Finalize();

  int64_t GetInt64(cudnnBackendAttributeName_t name) const;
  /// How many values the attribute has.
  int64_t Count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;
  /// Reads up to `capacity` values of `type`; returns how many there were.
  int64_t Get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t capacity,
              void* values) const;

  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  static cudnnBackendAttributeType_t TypeOf(int64_t) { return CUDNN_TYPE_INT64; }
  static cudnnBackendAttributeType_t TypeOf(bool) { return CUDNN_TYPE_BOOLEAN; }
  static cudnnBackendAttributeType_t TypeOf(void*) { return CUDNN_TYPE_VOID_PTR; }
  static cudnnBackendAttributeType_t TypeOf(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
  static cudnnBackendAttributeType_t TypeOf(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
  static cudnnBackendAttributeType_t TypeOf(cudnnPointwiseMode_t) {
    return CUDNN_TYPE_POINTWISE_MODE;
  }
  static cudnnBackendAttributeType_t TypeOf(cudnnReduceTensorOp_t) {
    return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  }
  static cudnnBackendAttributeType_t TypeOf(cudnnBackendHeurMode_t) { return CUDNN_TYPE_HEUR_MODE; }

  void SetRaw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
              const void* values);

  cudnnBackendDescriptor_t raw_ = nullptr;
  std::string purpose_;
};

/// Dimensions, or strides in elements, of a tensor: batch, head, row, column.
using CudnnDims = std::array<int64_t, 4>;

/// A graph under construction. A tensor goes by its id, which is also its id in a variant pack;
/// operations are added in the order of computation.
class CudnnGraph {
 public:
  using TensorId = int64_t;

  /// Device memory, aligned to 16 bytes.
  TensorId Real(const std::string& name, const CudnnDims& dims, const CudnnDims& strides,
                cudnnDataType_t type);
  /// One fp32 number on the host.
  TensorId Scalar(const std::string& name);
  /// An intermediate result, not in memory. Densely packed where no strides are given.
  TensorId Virtual(const std::string& name, const CudnnDims& dims,
                   cudnnDataType_t type = CUDNN_DATA_FLOAT);
  TensorId Virtual(const std::string& name, const CudnnDims& dims, const CudnnDims& strides,
                   cudnnDataType_t type);

  /// c = a b for each batch and head, accumulated in fp32. Where b has fewer heads, each serves as
  /// many consecutive heads of a.
  void MatMul(TensorId a, TensorId b, TensorId c);
  /// y = mode(x), computed in `arithmetic`.
  void Pointwise(cudnnPointwiseMode_t mode, TensorId x, TensorId y);
  /// y = mode(x, b), b broadcast to x.
  void Pointwise(cudnnPointwiseMode_t mode, TensorId x, TensorId b, TensorId y,
                 cudnnDataType_t arithmetic = CUDNN_DATA_FLOAT);
  /// y = the index along `axis`, an int32 for each element of x.
  void GenIndex(int64_t axis, TensorId x, TensorId y);
  /// y = condition ? x : other.
  void Select(TensorId condition, TensorId x, TensorId other, TensorId y);
  /// y = x reduced in fp32 over the dimensions in which y has fewer elements.
  void Reduce(cudnnReduceTensorOp_t mode, TensorId x, TensorId y);
  /// y = x under the dims and strides of y.
  void Reshape(TensorId x, TensorId y);

  int64_t operations() const { return static_cast<int64_t>(operations_.size()); }

  /// The finalized operation graph; this object must outlive it. `handle` is null where the device
  /// is only described.
  CudnnDescriptor Finish(cudnnHandle_t handle, const std::string& purpose) const;

 private:
  TensorId Add(const std::string& name, const CudnnDims& dims, const CudnnDims& strides,
               cudnnDataType_t type, bool is_virtual, bool by_value);
  const CudnnDescriptor& tensor(TensorId id) const { return tensors_[static_cast<size_t>(id) - 1]; }
  CudnnDescriptor& Operation(cudnnBackendDescriptorType_t type, TensorId y);
  CudnnDescriptor& PointwiseOperation(cudnnPointwiseMode_t mode, cudnnDataType_t arithmetic,
                                      int64_t axis, TensorId x, TensorId y);

  // Deques, because descriptors refer to descriptors: nothing moves.
  std::deque<CudnnDescriptor> tensors_;
  std::deque<std::string> names_;
  std::deque<CudnnDescriptor> settings_;
  std::deque<CudnnDescriptor> operations_;
};

/// The device a graph is planned for: one that is there, by its handle, or a described one (a
/// CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR), for which graphs can be checked on any machine.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* described = nullptr;
};

/// What the heuristics offer for the graph, best first; empty where no engine supports it.
std::deque<CudnnDescriptor> CudnnEngineConfigs(const CudnnDescriptor& graph,
                                               const CudnnTarget& target);

/// Which engine a configuration takes, and what cuDNN says of it.
struct CudnnEngine {
  int64_t index = -1;
  bool tensor_cores = false;
  bool deterministic = true;
};
CudnnEngine DescribeEngine(const CudnnDescriptor& engine_config);

/// The finalized plan of a configuration: its kernels, compiled and loaded.
CudnnDescriptor CudnnPlan(const CudnnDescriptor& engine_config, const CudnnTarget& target);

/// A tensor of a graph and its memory: the device's for a real one, the host's for a scalar.
struct CudnnOperand {
  CudnnGraph::TensorId tensor;
  void* data;
};

/// Runs a plan on the stream of `handle`.
void CudnnExecute(cudnnHandle_t handle, const CudnnDescriptor& plan,
                  const std::vector<CudnnOperand>& operands, void* workspace);

}  // namespace trimtab
