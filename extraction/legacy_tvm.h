// Calls into a TVM up to 0.19, the ones with auto_scheduler, through their C API (include/tvm/runtime/c_runtime_api.h),
// which kept its layout through all of them. Nothing of TVM is needed to build this: the functions are looked up in the
// library that Python has loaded.
#ifndef TVM_GNN_COST_EXTRACTION_LEGACY_TVM_H_
#define TVM_GNN_COST_EXTRACTION_LEGACY_TVM_H_

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string>
#include <utility>

namespace tvm_gnn_cost {

union LegacyCell {
  int64_t v_int64;
  double v_float64;
  void* v_handle;
  const char* v_str;
};

// The type codes of TVMArgTypeCode that are read here.
enum LegacyCode : int {
  kLegacyInt = 0,
  kLegacyFloat = 2,
  kLegacyNull = 4,
  kLegacyObject = 8,
  kLegacyFunction = 10,
  kLegacyString = 11,  // data types come as text too
  kLegacyBool = 15,
};

class LegacyTVM;

// What a call returned; frees it.
class LegacyValue {
 public:
  LegacyValue(const LegacyTVM* tvm, LegacyCell cell, int code) : cell(cell), code(code), tvm_(tvm) {}
  LegacyValue(LegacyValue&& other) noexcept
      : cell(other.cell), code(std::exchange(other.code, kLegacyNull)), tvm_(other.tvm_) {}
  LegacyValue(const LegacyValue&) = delete;
  LegacyValue& operator=(const LegacyValue&) = delete;
  LegacyValue& operator=(LegacyValue&&) = delete;
  ~LegacyValue();

  void* object() const { return code == kLegacyObject ? cell.v_handle : nullptr; }

  LegacyCell cell;
  int code;

 private:
  const LegacyTVM* tvm_;
};

struct LegacyArg {
  LegacyCell cell;
  int code;

  static LegacyArg Int(int64_t value) {
    LegacyCell cell;
    cell.v_int64 = value;
    return {cell, kLegacyInt};
  }
  static LegacyArg Object(void* value) {
    LegacyCell cell;
    cell.v_handle = value;
    return {cell, value == nullptr ? kLegacyNull : kLegacyObject};
  }
  static LegacyArg String(const char* value) {
    LegacyCell cell;
    cell.v_str = value;
    return {cell, kLegacyString};
  }
};

class LegacyTVM {
 public:
  // The library that this process has loaded from that path; throws GraphError if it has not, or is no such TVM.
  static const LegacyTVM& Of(const std::string& path);

  // A global function; throws GraphError where this TVM lacks it.
  void* Function(const char* name) const;
  // Throws GraphError with the last line of TVM's message.
  LegacyValue Call(void* function, std::initializer_list<LegacyArg> args) const;
  // A number of the type, for this process, and its name.
  uint32_t TypeIndex(void* object) const;
  std::string TypeKey(uint32_t type_index) const;

  int64_t ArraySize(void* array) const;
  LegacyValue ArrayItem(void* array, int64_t i) const;
  LegacyValue Attribute(void* object, const char* name) const;
  // Of a string in either form; empty for anything else.
  std::string Text(const LegacyValue& string) const;

  // A module of the schedule that the state's steps give: what auto_scheduler starts its own features from. It is not
  // simplified: that takes as long as all the rest (76 ms for a Winograd convolution, 5 times the rest) and changes
  // index arithmetic alone, which the analysis of the indices sees through.
  LegacyValue Lower(void* compute_dag, void* state) const;

  void* array_size = nullptr;
  void* array_item = nullptr;
  void* map_items = nullptr;
  void* attribute_names = nullptr;
  void* attribute = nullptr;
  void* text = nullptr;

 private:
  friend class LegacyValue;
  explicit LegacyTVM(void* library);
  [[noreturn]] void Fail() const;

  // Looked up at the first use: a TVM built without auto_scheduler can still read modules.
  struct Lowering {
    void *apply_steps, *to_module;
  };
  mutable std::once_flag found_lowering_;
  mutable Lowering lowering_{};
  int (*get_global_)(const char*, void**) = nullptr;
  int (*call_)(void*, LegacyCell*, int*, int, LegacyCell*, int*) = nullptr;
  int (*free_object_)(void*) = nullptr;
  int (*free_function_)(void*) = nullptr;
  int (*type_index_)(void*, unsigned*) = nullptr;
  int (*type_key_)(unsigned, char**) = nullptr;
  const char* (*last_error_)() = nullptr;
};

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_LEGACY_TVM_H_
