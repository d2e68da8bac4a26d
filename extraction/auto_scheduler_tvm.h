// The C API of TVM up to 0.19 (include/tvm/runtime/c_runtime_api.h), the releases with auto_scheduler. They all have
// the same API: functions take and return values packed with type codes (PackedFunc). Building this does
// not need TVM: the functions are looked up in the library that Python has loaded.
#ifndef TVM_GNN_COST_EXTRACTION_AUTO_SCHEDULER_TVM_H_
#define TVM_GNN_COST_EXTRACTION_AUTO_SCHEDULER_TVM_H_

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string>
#include <utility>

namespace tvm_gnn_cost {

union PackedCell {
  int64_t v_int64;
  double v_float64;
  void* v_handle;
  const char* v_str;
};

// The codes of TVMArgTypeCode that are used here.
enum PackedCode : int {
  kPackedInt = 0,
  kPackedFloat = 2,
  kPackedNull = 4,
  kPackedObject = 8,
  kPackedFunction = 10,
  kPackedString = 11,  // data types are also returned as strings
  kPackedBool = 15,
};

class AutoSchedulerTVM;

// A value that a call returned; its destructor frees it.
class PackedValue {
 public:
  PackedValue(const AutoSchedulerTVM* tvm, PackedCell cell, int code) : cell(cell), code(code), tvm_(tvm) {}
  PackedValue(PackedValue&& other) noexcept
      : cell(other.cell), code(std::exchange(other.code, kPackedNull)), tvm_(other.tvm_) {}
  PackedValue(const PackedValue&) = delete;
  PackedValue& operator=(const PackedValue&) = delete;
  PackedValue& operator=(PackedValue&&) = delete;
  ~PackedValue();

  void* object() const { return code == kPackedObject ? cell.v_handle : nullptr; }

  PackedCell cell;
  int code;

 private:
  const AutoSchedulerTVM* tvm_;
};

struct PackedArg {
  PackedCell cell;
  int code;

  static PackedArg Int(int64_t value) {
    PackedCell cell;
    cell.v_int64 = value;
    return {cell, kPackedInt};
  }
  static PackedArg Object(void* value) {
    PackedCell cell;
    cell.v_handle = value;
    return {cell, value == nullptr ? kPackedNull : kPackedObject};
  }
  static PackedArg String(const char* value) {
    PackedCell cell;
    cell.v_str = value;
    return {cell, kPackedString};
  }
};

class AutoSchedulerTVM {
 public:
  // The library that this process has loaded from `path`. Throws GraphError if it is not loaded or has another API.
  static const AutoSchedulerTVM& Of(const std::string& path);

  // Looks up a global function; throws GraphError if this TVM lacks it.
  void* Function(const char* name) const;
  // Throws GraphError with the last line of TVM's message if the call fails.
  PackedValue Call(void* function, std::initializer_list<PackedArg> args) const;
  // The type's index, which is valid in this process only, and its name.
  uint32_t TypeIndex(void* object) const;
  std::string TypeKey(uint32_t type_index) const;

  int64_t ArraySize(void* array) const;
  PackedValue ArrayItem(void* array, int64_t i) const;
  PackedValue Attribute(void* object, const char* name) const;
  // The content of a C string or string object; empty for anything else.
  std::string Text(const PackedValue& string) const;

  // Replays the state's steps and lowers the schedule to a module, from which auto_scheduler computes its features too.
  // The module is not simplified: that takes 5 times as long as everything else (76 ms for a Winograd convolution) and
  // only changes index arithmetic, which IndexAnalyzer handles.
  PackedValue Lower(void* compute_dag, void* state) const;

  void* array_size = nullptr;
  void* array_item = nullptr;
  void* map_items = nullptr;
  void* attribute_names = nullptr;
  void* attribute = nullptr;
  void* text = nullptr;

 private:
  friend class PackedValue;
  explicit AutoSchedulerTVM(void* library);
  [[noreturn]] void Fail() const;

  // Looked up at their first use, so that modules can be read with a TVM without auto_scheduler.
  struct Lowering {
    void *apply_steps, *to_module;
  };
  mutable std::once_flag found_lowering_;
  mutable Lowering lowering_{};
  int (*get_global_)(const char*, void**) = nullptr;
  int (*call_)(void*, PackedCell*, int*, int, PackedCell*, int*) = nullptr;
  int (*free_object_)(void*) = nullptr;
  int (*free_function_)(void*) = nullptr;
  int (*type_index_)(void*, unsigned*) = nullptr;
  int (*type_key_)(unsigned, char**) = nullptr;
  const char* (*last_error_)() = nullptr;
};

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_AUTO_SCHEDULER_TVM_H_
