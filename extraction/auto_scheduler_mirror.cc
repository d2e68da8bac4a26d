#include "auto_scheduler_mirror.h"

#include <tvm/ffi/container/map.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "program_graph.h"
#include "registered_types.h"

namespace tvm_gnn_cost {
namespace {

using Schema = MirrorSchema;

constexpr size_t kBlockBytes = size_t{1} << 18;

int32_t RegisterMirror(const std::string& key) { return RegisterType("mirror." + key); }

void RegisterReference(int32_t type, const std::string& name, int64_t offset) {
  RegisterField(type, name, offset, kTVMFFIObject, sizeof(void*), GetObject);
}

// The types whose copies have other fields, registered beforehand; each field has a slot, in this order.
struct KnownTypes {
  int32_t prim_type = RegisterMirror("ir.PrimType");
  int32_t buffer_type = RegisterMirror("ir.BufferType");
  int32_t variable = RegisterMirror("tir.Var");
  int32_t operator_type = RegisterMirror("ir.Op");
  int32_t function = RegisterMirror("tir.PrimFunc");

  KnownTypes() {
    RegisterField(prim_type, "dtype", kFirstSlot, kTVMFFIDataType, sizeof(DLDataType), GetDType);
    int64_t offset = kFirstSlot;
    for (const char* name : {"dtype", "shape", "strides", "elem_offset"}) {
      RegisterReference(buffer_type, name, std::exchange(offset, offset + kSlot));
    }
    RegisterReference(variable, "ty", kFirstSlot);
    RegisterField(operator_type, "name", kFirstSlot, kTVMFFIAny, kSlot, GetAny);
    RegisterReference(function, "params", kFirstSlot);
    RegisterReference(function, "body", kFirstSlot + kSlot);
  }
};

const KnownTypes& Known() {
  static const KnownTypes* types = new KnownTypes();
  return *types;
}

template <typename T>
T& SlotOf(TVMFFIObject* object, int64_t offset) {
  return *reinterpret_cast<T*>(reinterpret_cast<char*>(object) + offset);
}

TVMFFIObject*& Reference(TVMFFIObject* object, int slot) {
  return SlotOf<TVMFFIObject*>(object, kFirstSlot + slot * kSlot);
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

Schema::Kind KindOf(const std::string& key) {
  static const std::map<std::string, Schema::Kind> kinds = {
      {"runtime.String", Schema::Kind::kText},
      {"Array", Schema::Kind::kArray},
      {"Map", Schema::Kind::kMap},
      {"IRModule", Schema::Kind::kModule},
      {"tir.PrimFunc", Schema::Kind::kFunction},
      {"Op", Schema::Kind::kOperator},
      {"tir.Var", Schema::Kind::kVariable},
      {"tir.SizeVar", Schema::Kind::kVariable},
      {"tir.Buffer", Schema::Kind::kBuffer},
  };
  const auto found = kinds.find(key);
  if (found != kinds.end()) return found->second;
  for (const char* end : {"Type", "Attrs", "Span", "SourceName", "SourceMap"}) {
    if (EndsWith(key, end)) return Schema::Kind::kSkipped;
  }
  return key.rfind("runtime.", 0) == 0 ? Schema::Kind::kSkipped : Schema::Kind::kNode;
}

bool IsLeftOut(const std::string& attribute) {
  static const std::set<std::string> names = {"span", "_checked_type_", "checked_type_", "struct_info_",
                                              "virtual_device_"};
  return names.count(attribute) > 0;
}

// A zeroed object of the type. Its reference count is one, so dropping another reference never frees it.
TVMFFIObject* InitObject(char* memory, size_t bytes, int32_t type_index) {
  std::memset(memory, 0, bytes);
  auto* object = reinterpret_cast<TVMFFIObject*>(memory);
  object->type_index = type_index;
  object->combined_ref_count = (uint64_t{1} << 32) | 1;  // one strong reference and one weak
  return object;
}

// The copy of an operator. The registry knows operators by address, so a copy lives as long as the process and no other
// object ever takes its address.
TVMFFIObject* OperatorNamed(const std::string& name) {
  struct Operator {
    alignas(16) char memory[kFirstSlot + kSlot];
    tvm::ffi::Any name;
  };
  static std::mutex mutex;
  static auto* known = new std::map<std::string, Operator>();
  std::lock_guard<std::mutex> lock(mutex);
  const auto [entry, is_new] = known->try_emplace(name);
  auto& [memory, text] = entry->second;
  if (is_new) {
    text = tvm::ffi::String(name);
    auto* object = InitObject(memory, sizeof(memory), Known().operator_type);
    SlotOf<TVMFFIAny>(object, kFirstSlot) = *reinterpret_cast<const TVMFFIAny*>(&text);
  }
  return reinterpret_cast<TVMFFIObject*>(memory);
}

// Lists a type's attributes. This TVM does not report their types: the first object of the type decides whether
// an attribute is a reference.
void ReadAttributes(const AutoSchedulerTVM& tvm, void* object, const std::string& key, Schema& schema) {
  schema.mirror_type = RegisterMirror(key);
  const PackedValue names = tvm.Call(tvm.attribute_names, {PackedArg::Object(object)});
  if (names.code != kPackedFunction) throw GraphError("a " + key + " does not list its attributes");
  const int64_t count = tvm.Call(names.cell.v_handle, {PackedArg::Int(-1)}).cell.v_int64;
  int64_t offset = kFirstSlot;
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = tvm.Call(names.cell.v_handle, {PackedArg::Int(i)}).cell.v_str;
    if (IsLeftOut(name)) continue;
    const PackedValue value = tvm.Attribute(object, name.c_str());
    const bool is_dtype = name == "dtype" && value.code == kPackedString;
    const bool is_text = value.code == kPackedObject && tvm.TypeKey(tvm.TypeIndex(value.object())) == "runtime.String";
    const bool is_object = is_dtype || (!is_text && (value.code == kPackedObject || value.code == kPackedNull));
    schema.attributes.push_back({name, is_dtype, is_object, offset});
    if (is_object) {
      RegisterReference(schema.mirror_type, is_dtype ? "ty" : name, offset);
    } else {
      RegisterField(schema.mirror_type, name, offset, kTVMFFIAny, kSlot, GetAny);
    }
    offset += kSlot;
  }
  schema.bytes = offset;
}

}  // namespace

const MirrorSchema& ModuleMirror::SchemaOf(void* object) {
  const uint32_t index = tvm_->TypeIndex(object);
  const MirrorSchema*& schema = schemas_[index];
  if (schema == nullptr) {
    static std::mutex mutex;
    // By type key, for all workers: types are registered once per process.
    static auto* known = new std::map<std::string, std::unique_ptr<MirrorSchema>>();
    const std::string key = tvm_->TypeKey(index);
    std::lock_guard<std::mutex> lock(mutex);
    auto& entry = (*known)[key];
    if (entry == nullptr) {
      auto made = std::make_unique<MirrorSchema>();
      made->kind = KindOf(key);
      if (made->kind == Schema::Kind::kNode) ReadAttributes(*tvm_, object, key, *made);
      entry = std::move(made);
    }
    schema = entry.get();
  }
  return *schema;
}

std::vector<std::pair<std::string, const TVMFFIObject*>> ModuleMirror::Copy(const AutoSchedulerTVM& tvm, void* module) {
  tvm_ = &tvm;
  copies_.clear();
  element_types_.clear();
  held_.clear();
  block_ = used_ = 0;
  if (SchemaOf(module).kind != Schema::Kind::kModule) {
    throw GraphError("expected a tvm.IRModule, got a " + tvm.TypeKey(tvm.TypeIndex(module)), true);
  }
  std::vector<std::pair<std::string, const TVMFFIObject*>> functions;
  const PackedValue map = tvm.Attribute(module, "functions");
  const PackedValue items = tvm.Call(tvm.map_items, {PackedArg::Object(map.object())});
  for (int64_t i = 0; i + 1 < tvm.ArraySize(items.object()); i += 2) {
    const PackedValue function = tvm.ArrayItem(items.object(), i + 1);
    if (SchemaOf(function.object()).kind != Schema::Kind::kFunction) continue;
    const PackedValue variable = tvm.ArrayItem(items.object(), i);
    const PackedValue name = tvm.Attribute(variable.object(), "name_hint");
    functions.emplace_back(tvm.Text(name), CopyObject(function.object(), 0));
  }
  return functions;
}

TVMFFIObject* ModuleMirror::CopyObject(void* object, int nest) {
  if (object == nullptr) return nullptr;
  const auto found = copies_.find(object);
  if (found != copies_.end()) return found->second;
  const MirrorSchema& schema = SchemaOf(object);
  if (nest >= kMaxNest) throw GraphError(TooDeep(tvm_->TypeKey(tvm_->TypeIndex(object))));
  TVMFFIObject* copy = nullptr;
  switch (schema.kind) {
    case Schema::Kind::kSkipped:
    case Schema::Kind::kText:
    case Schema::Kind::kModule: break;
    case Schema::Kind::kArray: copy = CopyArray(object, nest); break;
    case Schema::Kind::kMap: copy = CopyMap(object, nest); break;
    case Schema::Kind::kFunction: copy = CopyFunction(object, nest); break;
    case Schema::Kind::kOperator: {
      const PackedValue name = tvm_->Attribute(object, "name");
      copy = OperatorNamed(tvm_->Text(name));
      break;
    }
    case Schema::Kind::kVariable:
      copy = NewObject(Known().variable, kFirstSlot + kSlot);
      Reference(copy, 0) = ElementType(tvm_->Attribute(object, "dtype"));
      break;
    case Schema::Kind::kBuffer: copy = CopyBuffer(object, nest); break;
    case Schema::Kind::kNode: copy = CopyNode(object, schema, nest); break;
  }
  return copies_[object] = copy;
}

TVMFFIObject* ModuleMirror::CopyArray(void* array, int nest) {
  std::vector<TVMFFIObject*> items(static_cast<size_t>(tvm_->ArraySize(array)));
  for (size_t i = 0; i < items.size(); ++i) {
    const PackedValue item = tvm_->ArrayItem(array, static_cast<int64_t>(i));
    items[i] = CopyObject(item.object(), nest + 1);
  }
  return NewArray(items);
}

TVMFFIObject* ModuleMirror::CopyMap(void* map, int nest) {
  const PackedValue items = tvm_->Call(tvm_->map_items, {PackedArg::Object(map)});
  tvm::ffi::Map<tvm::ffi::String, tvm::ffi::Any> copy;
  for (int64_t i = 0; i + 1 < tvm_->ArraySize(items.object()); i += 2) {
    const PackedValue key = tvm_->ArrayItem(items.object(), i);
    if (key.object() == nullptr || SchemaOf(key.object()).kind != Schema::Kind::kText) {
      return CopyArray(items.object(), nest);
    }
    const PackedValue value = tvm_->ArrayItem(items.object(), i + 1);
    const tvm::ffi::String name(tvm_->Text(key));
    if (value.object() != nullptr && tvm_->TypeKey(tvm_->TypeIndex(value.object())) == "IntImm") {
      // TVM 0.25 and newer store the number directly.
      copy.Set(name, tvm_->Attribute(value.object(), "value").cell.v_int64);
    } else if (TVMFFIObject* item = CopyObject(value.object(), nest + 1)) {
      TVMFFIAny view{};
      view.type_index = item->type_index;
      view.v_obj = item;
      tvm::ffi::Any held;
      GetAny(&view, reinterpret_cast<TVMFFIAny*>(&held));
      copy.Set(name, held);
    }
  }
  held_.emplace_back(copy);
  return reinterpret_cast<const TVMFFIAny*>(&held_.back())->v_obj;
}

TVMFFIObject* ModuleMirror::NewArray(const std::vector<TVMFFIObject*>& items) {
  const auto count = static_cast<int64_t>(items.size());
  constexpr auto kCell = static_cast<int64_t>((sizeof(TVMFFIObject) + sizeof(TVMFFISeqCell) + 15) / 16 * 16);
  TVMFFIObject* copy = NewObject(kTVMFFIArray, kCell + count * kSlot);
  auto* cell = reinterpret_cast<TVMFFISeqCell*>(copy + 1);
  cell->data = reinterpret_cast<char*>(copy) + kCell;
  cell->size = cell->capacity = count;
  auto* cells = static_cast<TVMFFIAny*>(cell->data);
  for (size_t i = 0; i < items.size(); ++i) {
    cells[i].v_obj = items[i];
    cells[i].type_index = items[i] == nullptr ? static_cast<int32_t>(kTVMFFINone) : items[i]->type_index;
  }
  return copy;
}

TVMFFIObject* ModuleMirror::CopyNode(void* object, const MirrorSchema& schema, int nest) {
  TVMFFIObject* copy = NewObject(schema.mirror_type, schema.bytes);
  for (const Schema::Attribute& attribute : schema.attributes) {
    const PackedValue value = tvm_->Attribute(object, attribute.name.c_str());
    if (attribute.is_dtype) {
      SlotOf<TVMFFIObject*>(copy, attribute.offset) = ElementType(value);
      continue;
    }
    if (attribute.is_object) {
      SlotOf<TVMFFIObject*>(copy, attribute.offset) = CopyObject(value.object(), nest + 1);
      continue;
    }
    auto& slot = SlotOf<TVMFFIAny>(copy, attribute.offset);
    if (value.code == kPackedInt || value.code == kPackedBool) {
      slot.type_index = kTVMFFIInt;
      slot.v_int64 = value.cell.v_int64;
    } else if (value.code == kPackedFloat) {
      slot.type_index = kTVMFFIFloat;
      slot.v_float64 = value.cell.v_float64;
    } else if (value.code == kPackedString ||
               (value.object() != nullptr && SchemaOf(value.object()).kind == Schema::Kind::kText)) {
      held_.emplace_back(tvm::ffi::String(tvm_->Text(value)));
      slot = *reinterpret_cast<const TVMFFIAny*>(&held_.back());
    } else if (TVMFFIObject* item = CopyObject(value.object(), nest + 1)) {
      slot.type_index = item->type_index;
      slot.v_obj = item;
    }
  }
  return copy;
}

TVMFFIObject* ModuleMirror::CopyFunction(void* function, int nest) {
  const PackedValue params = tvm_->Attribute(function, "params");
  const PackedValue map = tvm_->Attribute(function, "buffer_map");
  const PackedValue pairs = tvm_->Call(tvm_->map_items, {PackedArg::Object(map.object())});
  std::unordered_map<void*, TVMFFIObject*> buffers;
  for (int64_t i = 0; i + 1 < tvm_->ArraySize(pairs.object()); i += 2) {
    const PackedValue variable = tvm_->ArrayItem(pairs.object(), i);
    const PackedValue buffer = tvm_->ArrayItem(pairs.object(), i + 1);
    buffers[variable.object()] = CopyObject(buffer.object(), nest + 1);
  }
  std::vector<TVMFFIObject*> items(static_cast<size_t>(tvm_->ArraySize(params.object())));
  for (size_t i = 0; i < items.size(); ++i) {
    const PackedValue param = tvm_->ArrayItem(params.object(), static_cast<int64_t>(i));
    const auto buffer = buffers.find(param.object());
    items[i] = buffer != buffers.end() ? buffer->second : CopyObject(param.object(), nest + 1);
  }
  TVMFFIObject* copy = NewObject(Known().function, kFirstSlot + 2 * kSlot);
  Reference(copy, 0) = NewArray(items);
  Reference(copy, 1) = Child(function, "body", nest);
  return copy;
}

TVMFFIObject* ModuleMirror::CopyBuffer(void* buffer, int nest) {
  TVMFFIObject* type = NewObject(Known().buffer_type, kFirstSlot + 4 * kSlot);
  Reference(type, 0) = ElementType(tvm_->Attribute(buffer, "dtype"));
  Reference(type, 1) = Child(buffer, "shape", nest);
  Reference(type, 2) = Child(buffer, "strides", nest);
  Reference(type, 3) = Child(buffer, "elem_offset", nest);
  TVMFFIObject* copy = NewObject(Known().variable, kFirstSlot + kSlot);
  Reference(copy, 0) = type;
  return copy;
}

TVMFFIObject* ModuleMirror::Child(void* object, const char* attribute, int nest) {
  const PackedValue value = tvm_->Attribute(object, attribute);
  return CopyObject(value.object(), nest + 1);
}

// Returns null for a pointer, which has no element type.
TVMFFIObject* ModuleMirror::ElementType(const PackedValue& dtype) {
  if (dtype.code != kPackedString) return nullptr;
  const auto [entry, is_new] = element_types_.emplace(dtype.cell.v_str, nullptr);
  if (!is_new || entry->first == "handle" || entry->first == "void") return entry->second;
  const TVMFFIByteArray text{entry->first.data(), entry->first.size()};
  DLDataType parsed{};
  // TVM 0.25 and newer have no name for this type: the node has no dtype.
  if (TVMFFIDataTypeFromString(&text, &parsed) != 0) {
    TVMFFIObjectHandle error = nullptr;
    TVMFFIErrorMoveFromRaised(&error);
    if (error != nullptr) TVMFFIObjectDecRef(error);
    return nullptr;
  }
  entry->second = NewObject(Known().prim_type, kFirstSlot + kSlot);
  SlotOf<DLDataType>(entry->second, kFirstSlot) = parsed;
  return entry->second;
}

TVMFFIObject* ModuleMirror::NewObject(int32_t type_index, int64_t bytes) {
  const auto size = (static_cast<size_t>(bytes) + 15) / 16 * 16;
  if (size > kBlockBytes) throw GraphError(TooLarge());
  if (block_ < blocks_.size() && used_ + size > kBlockBytes) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) blocks_.push_back(std::make_unique<char[]>(kBlockBytes));
  char* memory = blocks_[block_].get() + used_;
  used_ += size;
  return InitObject(memory, size, type_index);
}

}  // namespace tvm_gnn_cost
