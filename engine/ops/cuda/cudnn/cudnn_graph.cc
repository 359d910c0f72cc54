#include "engine/ops/cuda/cudnn/cudnn_graph.h"

#include <algorithm>
#include <utility>

namespace trimtab {
namespace {

CudnnDims Packed(const CudnnDims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

}  // namespace

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type, std::string purpose)
    : purpose_(std::move(purpose)) {
  TRIMTAB_CUDNN_CHECK(purpose_, Cudnn().create_descriptor(type, &raw_));
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : raw_(std::exchange(other.raw_, nullptr)), purpose_(std::move(other.purpose_)) {}

CudnnDescriptor::~CudnnDescriptor() {
  if (raw_ != nullptr) Cudnn().destroy_descriptor(raw_);
}

void CudnnDescriptor::SetRaw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             int64_t count, const void* values) {
  TRIMTAB_CUDNN_CHECK(fmt::format("{}, attribute {}", purpose_, static_cast<int>(name)),
                      Cudnn().set_attribute(raw_, name, type, count, values));
}

void CudnnDescriptor::Set(cudnnBackendAttributeName_t name, const std::string& text) {
  SetRaw(name, CUDNN_TYPE_CHAR, static_cast<int64_t>(text.size()), text.data());
}

void CudnnDescriptor::Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  SetRaw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.raw_);
}

void CudnnDescriptor::Set(cudnnBackendAttributeName_t name,
                          const std::deque<CudnnDescriptor>& values) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const CudnnDescriptor& value : values) raw.push_back(value.raw());
  SetRaw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()), raw.data());
}

void CudnnDescriptor::Finalize() { TRIMTAB_CUDNN_CHECK(purpose_, Cudnn().finalize(raw_)); }

int64_t CudnnDescriptor::Get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             int64_t capacity, void* values) const {
  int64_t count = 0;
  TRIMTAB_CUDNN_CHECK(fmt::format("{}, attribute {}", purpose_, static_cast<int>(name)),
                      Cudnn().get_attribute(raw_, name, type, capacity, &count, values));
  return count;
}

int64_t CudnnDescriptor::Count(cudnnBackendAttributeName_t name,
                               cudnnBackendAttributeType_t type) const {
  return Get(name, type, 0, nullptr);
}

int64_t CudnnDescriptor::GetInt64(cudnnBackendAttributeName_t name) const {
  int64_t value = 0;
  Get(name, CUDNN_TYPE_INT64, 1, &value);
  return value;
}

CudnnGraph::TensorId CudnnGraph::Add(const std::string& name, const CudnnDims& dims,
                                     const CudnnDims& strides, cudnnDataType_t type,
                                     bool is_virtual, bool by_value) {
  constexpr int64_t kAlignment = 16;  // bytes
  const auto id = static_cast<TensorId>(tensors_.size()) + 1;
  CudnnDescriptor& d = tensors_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor " + name);
  names_.push_back(name);
  d.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  d.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  d.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
  d.Set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  d.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
  d.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual);
  d.Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value);
  d.Finalize();
  return id;
}

CudnnGraph::TensorId CudnnGraph::Real(const std::string& name, const CudnnDims& dims,
                                      const CudnnDims& strides, cudnnDataType_t type) {
  return Add(name, dims, strides, type, false, false);
}

CudnnGraph::TensorId CudnnGraph::Scalar(const std::string& name) {
  return Add(name, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, true);
}

CudnnGraph::TensorId CudnnGraph::Virtual(const std::string& name, const CudnnDims& dims,
                                         cudnnDataType_t type) {
  return Virtual(name, dims, Packed(dims), type);
}

CudnnGraph::TensorId CudnnGraph::Virtual(const std::string& name, const CudnnDims& dims,
                                         const CudnnDims& strides, cudnnDataType_t type) {
  return Add(name, dims, strides, type, true, false);
}

CudnnDescriptor& CudnnGraph::Operation(cudnnBackendDescriptorType_t type, TensorId y) {
  return operations_.emplace_back(type, "computing " + names_[static_cast<size_t>(y) - 1]);
}

void CudnnGraph::MatMul(TensorId a, TensorId b, TensorId c) {
  CudnnDescriptor& setting =
      settings_.emplace_back(CUDNN_BACKEND_MATMUL_DESCRIPTOR, "matrix product");
  setting.Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  setting.Finalize();
  CudnnDescriptor& d = Operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, c);
  d.Set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor(a));
  d.Set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor(b));
  d.Set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensor(c));
  d.Set(CUDNN_ATTR_OPERATION_MATMUL_DESC, setting);
  d.Finalize();
}

CudnnDescriptor& CudnnGraph::PointwiseOperation(cudnnPointwiseMode_t mode,
                                                cudnnDataType_t arithmetic, int64_t axis,
                                                TensorId x, TensorId y) {
  CudnnDescriptor& setting =
      settings_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise operation");
  setting.Set(CUDNN_ATTR_POINTWISE_MODE, mode);
  setting.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, arithmetic);
  if (mode == CUDNN_POINTWISE_GEN_INDEX) setting.Set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  setting.Finalize();
  CudnnDescriptor& d = Operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, y);
  d.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, setting);
  d.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensor(x));
  d.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensor(y));
  return d;
}

void CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, TensorId x, TensorId y) {
  PointwiseOperation(mode, CUDNN_DATA_FLOAT, -1, x, y).Finalize();
}

void CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, TensorId x, TensorId b, TensorId y,
                           cudnnDataType_t arithmetic) {
  CudnnDescriptor& d = PointwiseOperation(mode, arithmetic, -1, x, y);
  d.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(b));
  d.Finalize();
}

void CudnnGraph::GenIndex(int64_t axis, TensorId x, TensorId y) {
  PointwiseOperation(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, x, y).Finalize();
}

void CudnnGraph::Select(TensorId condition, TensorId x, TensorId other, TensorId y) {
  CudnnDescriptor& d =
      PointwiseOperation(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, x, y);
  d.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(other));
  d.Set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensor(condition));
  d.Finalize();
}

void CudnnGraph::Reduce(cudnnReduceTensorOp_t mode, TensorId x, TensorId y) {
  CudnnDescriptor& setting =
      settings_.emplace_back(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction");
  setting.Set(CUDNN_ATTR_REDUCTION_OPERATOR, mode);
  setting.Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  setting.Finalize();
  CudnnDescriptor& d = Operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, y);
  d.Set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensor(x));
  d.Set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensor(y));
  d.Set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, setting);
  d.Finalize();
}

void CudnnGraph::Reshape(TensorId x, TensorId y) {
  CudnnDescriptor& d = Operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, y);
  d.Set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensor(x));
  d.Set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensor(y));
  d.Finalize();
}

CudnnDescriptor CudnnGraph::Finish(cudnnHandle_t handle, const std::string& purpose) const {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, purpose);
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
  if (handle != nullptr) graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  graph.Finalize();
  return graph;
}

std::deque<CudnnDescriptor> CudnnEngineConfigs(const CudnnDescriptor& graph,
                                               const CudnnTarget& target) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.described != nullptr)
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.described);
  heuristics.Finalize();

  std::deque<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  const int64_t offered =
      heuristics.Count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  for (int64_t i = 0; i < offered; ++i) {
    raw.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine choice").raw());
  }
  const int64_t filled = heuristics.Get(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, offered, raw.data());
  while (static_cast<int64_t>(configs.size()) > filled) configs.pop_back();
  return configs;
}

CudnnEngine DescribeEngine(const CudnnDescriptor& engine_config) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
  cudnnBackendDescriptor_t raw = engine.raw();
  engine_config.Get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);

  CudnnEngine result;
  result.index = engine.GetInt64(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes = {};
  const int64_t count = engine.Get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   static_cast<int64_t>(notes.size()), notes.data());
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    if (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE) result.tensor_cores = true;
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) result.deterministic = false;
  }
  return result;
}

CudnnDescriptor CudnnPlan(const CudnnDescriptor& engine_config, const CudnnTarget& target) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
  if (target.handle != nullptr) plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
  if (target.described != nullptr)
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.described);
  plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine_config);
  plan.Finalize();
  return plan;
}

void CudnnExecute(cudnnHandle_t handle, const CudnnDescriptor& plan,
                  const std::vector<CudnnOperand>& operands, void* workspace) {
  std::vector<int64_t> ids;
  std::vector<void*> data;
  for (const CudnnOperand& operand : operands) {
    ids.push_back(operand.tensor);
    data.push_back(operand.data);
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "operands");
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, data);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
  pack.Finalize();
  TRIMTAB_CUDNN_CHECK("run of a plan", Cudnn().execute(handle, plan.raw(), pack.raw()));
}

}  // namespace trimtab
