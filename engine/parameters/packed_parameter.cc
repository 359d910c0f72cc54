#include "engine/parameters/packed_parameter.h"

namespace trimtab {

void AllocatePacked(Device& device, WeightFormat format, Parameter& parameter) {
  const ParameterSpec& spec = parameter.spec;
  const int64_t absorbed = spec.absorbed_rows;
  const int64_t rows = spec.rows / spec.multiplied - absorbed;
  parameter.packed = NewPackedMatrix(device, format, spec.multiplied, rows, spec.columns);
  if (absorbed == 0) return;
  parameter.packed_absorbed =
      NewPackedMatrix(device, format, spec.multiplied, spec.columns, absorbed);
}

}  // namespace trimtab
