#include "auto_scheduler_tvm.h"

#include <dlfcn.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "program_graph.h"

namespace tvm_gnn_cost {
namespace {

constexpr size_t kMaxArguments = 4;

template <typename F>
void Find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr) {
    throw GraphError(std::string("the TVM that is loaded has no ") + name +
                     "; one with auto_scheduler, up to 0.19, does");
  }
}

}  // namespace

PackedValue::~PackedValue() {
  if (code == kPackedObject) tvm_->free_object_(cell.v_handle);
  if (code == kPackedFunction) tvm_->free_function_(cell.v_handle);
}

const AutoSchedulerTVM& AutoSchedulerTVM::Of(const std::string& path) {
  static std::mutex mutex;
  // Never destroyed, like TVM's global functions.
  static auto* found = new std::map<std::string, std::unique_ptr<AutoSchedulerTVM>>();
  std::lock_guard<std::mutex> lock(mutex);
  auto& tvm = (*found)[path];
  if (tvm == nullptr) {
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) throw GraphError(path + " is not loaded; import tvm first");
    tvm.reset(new AutoSchedulerTVM(library));
  }
  return *tvm;
}

AutoSchedulerTVM::AutoSchedulerTVM(void* library) {
  Find(library, "TVMFuncGetGlobal", get_global_);
  Find(library, "TVMFuncCall", call_);
  Find(library, "TVMObjectFree", free_object_);
  Find(library, "TVMFuncFree", free_function_);
  Find(library, "TVMObjectGetTypeIndex", type_index_);
  Find(library, "TVMObjectTypeIndex2Key", type_key_);
  Find(library, "TVMGetLastError", last_error_);
  array_size = Function("runtime.ArraySize");
  array_item = Function("runtime.ArrayGetItem");
  map_items = Function("runtime.MapItems");
  attribute_names = Function("node.NodeListAttrNames");
  attribute = Function("node.NodeGetAttr");
  text = Function("runtime.GetFFIString");
}

void* AutoSchedulerTVM::Function(const char* name) const {
  void* function = nullptr;
  if (get_global_(name, &function) != 0) Fail();
  if (function == nullptr) throw GraphError(std::string("the TVM that is loaded has no function ") + name);
  return function;
}

PackedValue AutoSchedulerTVM::Call(void* function, std::initializer_list<PackedArg> args) const {
  std::array<PackedCell, kMaxArguments> cells;
  std::array<int, kMaxArguments> codes{};
  size_t count = 0;
  for (const PackedArg& arg : args) {
    cells.at(count) = arg.cell;
    codes.at(count++) = arg.code;
  }
  PackedCell result;
  result.v_int64 = 0;
  int code = kPackedNull;
  if (call_(function, cells.data(), codes.data(), static_cast<int>(count), &result, &code) != 0) Fail();
  return PackedValue(this, result, code);
}

void AutoSchedulerTVM::Fail() const {
  std::string message = last_error_();
  while (!message.empty() && (message.back() == '\n' || message.back() == ' ')) message.pop_back();
  const size_t line = message.rfind('\n');
  throw GraphError("TVM: " + (line == std::string::npos ? message : message.substr(line + 1)));
}

uint32_t AutoSchedulerTVM::TypeIndex(void* object) const {
  unsigned index = 0;
  if (type_index_(object, &index) != 0) Fail();
  return index;
}

std::string AutoSchedulerTVM::TypeKey(uint32_t type_index) const {
  char* key = nullptr;  // TVM allocates it without a way to free it; this is called once per type
  if (type_key_(type_index, &key) != 0) Fail();
  return key;
}

int64_t AutoSchedulerTVM::ArraySize(void* array) const {
  return Call(array_size, {PackedArg::Object(array)}).cell.v_int64;
}

PackedValue AutoSchedulerTVM::ArrayItem(void* array, int64_t i) const {
  return Call(array_item, {PackedArg::Object(array), PackedArg::Int(i)});
}

PackedValue AutoSchedulerTVM::Attribute(void* object, const char* name) const {
  return Call(attribute, {PackedArg::Object(object), PackedArg::String(name)});
}

std::string AutoSchedulerTVM::Text(const PackedValue& string) const {
  if (string.code == kPackedString) return string.cell.v_str;
  if (string.object() == nullptr) return "";
  const PackedValue value = Call(text, {PackedArg::Object(string.object())});
  return value.code == kPackedString ? value.cell.v_str : "";
}

PackedValue AutoSchedulerTVM::Lower(void* compute_dag, void* state) const {
  std::call_once(found_lowering_, [this] {
    lowering_ = {Function("auto_scheduler.ComputeDAGApplyStepsFromState"), Function("driver.schedule_to_module")};
  });
  const PackedValue applied =
      Call(lowering_.apply_steps, {PackedArg::Object(compute_dag), PackedArg::Object(state), PackedArg::Int(0)});
  const PackedValue schedule = ArrayItem(applied.object(), 0);
  const PackedValue tensors = ArrayItem(applied.object(), 1);
  return Call(lowering_.to_module, {PackedArg::Object(schedule.object()), PackedArg::Object(tensors.object()),
                                    PackedArg::String("main"), PackedArg::Object(nullptr)});
}

}  // namespace tvm_gnn_cost
