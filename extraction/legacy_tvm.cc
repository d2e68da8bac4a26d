#include "legacy_tvm.h"

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
    throw GraphError(std::string("the TVM that is loaded has no ") + name + "; one with auto_scheduler, up to 0.19, does");
  }
}

}  // namespace

LegacyValue::~LegacyValue() {
  if (code == kLegacyObject) tvm_->free_object_(cell.v_handle);
  if (code == kLegacyFunction) tvm_->free_function_(cell.v_handle);
}

const LegacyTVM& LegacyTVM::Of(const std::string& path) {
  static std::mutex mutex;
  static auto* found = new std::map<std::string, std::unique_ptr<LegacyTVM>>();  // never destroyed: its functions live on
  std::lock_guard<std::mutex> lock(mutex);
  auto& tvm = (*found)[path];
  if (tvm == nullptr) {
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) throw GraphError(path + " is not loaded; import tvm first");
    tvm.reset(new LegacyTVM(library));
  }
  return *tvm;
}

LegacyTVM::LegacyTVM(void* library) {
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

void* LegacyTVM::Function(const char* name) const {
  void* function = nullptr;
  if (get_global_(name, &function) != 0) Fail();
  if (function == nullptr) throw GraphError(std::string("the TVM that is loaded has no function ") + name);
  return function;
}

LegacyValue LegacyTVM::Call(void* function, std::initializer_list<LegacyArg> args) const {
  std::array<LegacyCell, kMaxArguments> cells;
  std::array<int, kMaxArguments> codes{};
  size_t count = 0;
  for (const LegacyArg& arg : args) {
    cells.at(count) = arg.cell;
    codes.at(count++) = arg.code;
  }
  LegacyCell result;
  result.v_int64 = 0;
  int code = kLegacyNull;
  if (call_(function, cells.data(), codes.data(), static_cast<int>(count), &result, &code) != 0) Fail();
  return LegacyValue(this, result, code);
}

void LegacyTVM::Fail() const {
  std::string message = last_error_();
  while (!message.empty() && (message.back() == '\n' || message.back() == ' ')) message.pop_back();
  const size_t line = message.rfind('\n');
  throw GraphError("TVM: " + (line == std::string::npos ? message : message.substr(line + 1)));
}

uint32_t LegacyTVM::TypeIndex(void* object) const {
  unsigned index = 0;
  if (type_index_(object, &index) != 0) Fail();
  return index;
}

std::string LegacyTVM::TypeKey(uint32_t type_index) const {
  char* key = nullptr;  // TVM allocates it and offers no way to free it; asked once a type
  if (type_key_(type_index, &key) != 0) Fail();
  return key;
}

int64_t LegacyTVM::ArraySize(void* array) const { return Call(array_size, {LegacyArg::Object(array)}).cell.v_int64; }

LegacyValue LegacyTVM::ArrayItem(void* array, int64_t i) const {
  return Call(array_item, {LegacyArg::Object(array), LegacyArg::Int(i)});
}

LegacyValue LegacyTVM::Attribute(void* object, const char* name) const {
  return Call(attribute, {LegacyArg::Object(object), LegacyArg::String(name)});
}

std::string LegacyTVM::Text(const LegacyValue& string) const {
  if (string.code == kLegacyString) return string.cell.v_str;
  if (string.object() == nullptr) return "";
  const LegacyValue value = Call(text, {LegacyArg::Object(string.object())});
  return value.code == kLegacyString ? value.cell.v_str : "";
}

LegacyValue LegacyTVM::Lower(void* compute_dag, void* state) const {
  std::call_once(found_lowering_, [this] {
    lowering_ = {Function("auto_scheduler.ComputeDAGApplyStepsFromState"), Function("driver.schedule_to_module")};
  });
  const LegacyValue applied =
      Call(lowering_.apply_steps, {LegacyArg::Object(compute_dag), LegacyArg::Object(state), LegacyArg::Int(0)});
  const LegacyValue schedule = ArrayItem(applied.object(), 0);
  const LegacyValue tensors = ArrayItem(applied.object(), 1);
  return Call(lowering_.to_module, {LegacyArg::Object(schedule.object()), LegacyArg::Object(tensors.object()),
                                    LegacyArg::String("main"), LegacyArg::Object(nullptr)});
}

}  // namespace tvm_gnn_cost
