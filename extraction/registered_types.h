// Registers types with tvm-ffi whose objects have their fields in slots after the header, so that the walker reads them
// by reflection like TVM's types.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/c_api.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "program_graph.h"

namespace tvm_gnn_cost {

// Size of a slot, which holds a field of any type, and the offset of the first slot.
constexpr int64_t kSlot = sizeof(TVMFFIAny);
constexpr int64_t kFirstSlot = (sizeof(TVMFFIObject) + 15) / 16 * 16;

// Getters of a field that holds an Any, an optional object, or a data type.
inline int GetAny(void* field, TVMFFIAny* result) {
  *reinterpret_cast<tvm::ffi::Any*>(result) = *static_cast<tvm::ffi::Any*>(field);
  return 0;
}

inline int GetObject(void* field, TVMFFIAny* result) {
  TVMFFIAny view{};
  view.v_obj = *static_cast<TVMFFIObject**>(field);
  view.type_index = view.v_obj == nullptr ? static_cast<int32_t>(kTVMFFINone) : view.v_obj->type_index;
  return GetAny(&view, result);
}

inline int GetDType(void* field, TVMFFIAny* result) {
  TVMFFIAny view{};
  view.v_dtype = *static_cast<DLDataType*>(field);
  view.type_index = kTVMFFIDataType;
  return GetAny(&view, result);
}

// Registers a type and returns its index. Throws GraphError if tvm-ffi rejects it.
inline int32_t RegisterType(const std::string& name) {
  const TVMFFIByteArray bytes{name.data(), name.size()};
  const int32_t index = TVMFFITypeGetOrAllocIndex(&bytes, -1, 1, 0, 1, kTVMFFIObject);
  if (index < 0) throw GraphError("the type " + name + " cannot be registered");
  return index;
}

// Registers a field of the given size and offset. Throws GraphError if tvm-ffi rejects it.
inline void RegisterField(int32_t type, const std::string& name, int64_t offset, int32_t static_type, int64_t size,
                          TVMFFIFieldGetter getter) {
  TVMFFIFieldInfo info{};
  info.name = {name.data(), name.size()};
  info.size = size;
  info.alignment = std::min<int64_t>(size, 8);
  info.offset = offset;
  info.getter = getter;
  info.field_static_type_index = static_type;
  info.default_value_or_factory.type_index = kTVMFFINone;
  if (TVMFFITypeRegisterField(type, &info) != 0) throw GraphError("the field " + name + " cannot be registered");
}

}  // namespace tvm_gnn_cost
