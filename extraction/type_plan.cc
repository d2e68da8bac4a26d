#include "type_plan.h"

#include <tvm/ffi/any.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <set>
#include <utility>

#include "program_graph.h"

namespace tvm_gnn_cost {
namespace {

std::string ToString(const TVMFFIByteArray& bytes) { return std::string(bytes.data, bytes.size); }

std::string TypeKeyOf(const TVMFFITypeInfo* info) {
  static const std::string mirror = "mirror.";
  const std::string key = ToString(info->type_key);
  return key.rfind(mirror, 0) == 0 ? key.substr(mirror.size()) : key;
}

// The kind of the type with a normalized name; the fields that this kind requires (a type that lacks one is walked as
// kGeneric); and the fields below which detail="statements" omits the nodes.
struct KindRule {
  const char* type_name;
  Kind kind;
  std::vector<std::string> needed;
  std::vector<std::string> hidden;
};

const std::vector<KindRule>& KindRules() {
  // clang-format off
  static const std::vector<KindRule> rules = {
      {"PrimFunc", Kind::kPrimFunc, {"params", "body"}, {"params"}},
      {"For", Kind::kFor, {"loop_var", "min", "extent", "kind", "body"},
       {"loop_var", "min", "extent", "thread_binding", "annotations", "step"}},
      {"BlockRealize", Kind::kBlockRealize, {"iter_values", "predicate", "block"}, {"iter_values", "predicate"}},
      {"Block", Kind::kBlock, {"iter_vars", "body", "init"},
       {"iter_vars", "reads", "writes", "alloc_buffers", "match_buffers", "annotations"}},
      {"IterVar", Kind::kIterVar, {"var", "iter_type"}, {"dom"}},
      {"Range", Kind::kRange, {"min", "extent"}, {}},
      {"BufferStore", Kind::kBufferStore, {"buffer", "value", "indices"}, {"buffer", "indices"}},
      {"BufferLoad", Kind::kBufferLoad, {"buffer", "indices"}, {"source", "buffer", "indices"}},
      {"AllocBuffer", Kind::kGeneric, {}, {"buffer", "annotations"}},
      {"DeclBuffer", Kind::kGeneric, {}, {"buffer", "data"}},
      {"AttrStmt", Kind::kAttr, {"attr_key", "value", "body"}, {"node", "value"}},
      {"BufferRealize", Kind::kBufferRealize, {"buffer", "bounds", "body"}, {"buffer", "bounds", "condition"}},
      {"Bind", Kind::kBind, {"var", "value"}, {"var"}},
      {"Let", Kind::kLet, {"var", "value", "body"}, {"var"}},
      {"Var", Kind::kVar, {"ty"}, {}},
      {"IntImm", Kind::kIntImm, {"value"}, {}},
      {"FloatImm", Kind::kFloatImm, {"value"}, {}},
      {"Add", Kind::kAdd, {"a", "b"}, {}},
      {"Sub", Kind::kSub, {"a", "b"}, {}},
      {"Mul", Kind::kMul, {"a", "b"}, {}},
      {"Div", Kind::kFloorDiv, {"a", "b"}, {}},
      {"FloorDiv", Kind::kFloorDiv, {"a", "b"}, {}},
      {"Mod", Kind::kFloorMod, {"a", "b"}, {}},
      {"FloorMod", Kind::kFloorMod, {"a", "b"}, {}},
      {"Min", Kind::kMin, {"a", "b"}, {}},
      {"Max", Kind::kMax, {"a", "b"}, {}},
      {"Cast", Kind::kCast, {"value"}, {}},
      {"Ramp", Kind::kRamp, {"base"}, {}},
      {"Broadcast", Kind::kBroadcast, {"value"}, {}},
      {"Select", Kind::kSelect, {"condition", "true_value", "false_value"}, {}},
      {"Call", Kind::kCall, {"op", "args"}, {}},
      {"SeqStmt", Kind::kSeqStmt, {"seq"}, {}},
  };
  // clang-format on
  return rules;
}

const std::unordered_map<std::string, Name>& FieldNames() {
  // clang-format off
  static const std::unordered_map<std::string, Name> names = {
      {"ty", Name::kTy}, {"body", Name::kBody}, {"loop_var", Name::kLoopVar}, {"min", Name::kMin},
      {"extent", Name::kExtent}, {"kind", Name::kKind}, {"annotations", Name::kAnnotations},
      {"iter_values", Name::kIterValues}, {"predicate", Name::kPredicate}, {"block", Name::kBlock},
      {"iter_vars", Name::kIterVars}, {"init", Name::kInit}, {"buffer", Name::kBuffer}, {"source", Name::kSource},
      {"value", Name::kValue}, {"indices", Name::kIndices}, {"params", Name::kParams}, {"var", Name::kVar},
      {"iter_type", Name::kIterType}, {"a", Name::kA}, {"b", Name::kB}, {"base", Name::kBase},
      {"condition", Name::kCondition}, {"true_value", Name::kTrueValue}, {"false_value", Name::kFalseValue},
      {"op", Name::kOp}, {"args", Name::kArgs}, {"dtype", Name::kDtype}, {"shape", Name::kShape},
      {"strides", Name::kStrides}, {"elem_offset", Name::kElemOffset}, {"functions", Name::kFunctions},
      {"seq", Name::kSeq}, {"name_hint", Name::kNameHint}, {"name", Name::kName}, {"attr_key", Name::kAttrKey},
      {"bounds", Name::kBounds}, {"thread_binding", Name::kThreadBinding}, {"thread_tag", Name::kThreadTag},
      {"storage_scope", Name::kStorageScope}, {"match_buffers", Name::kMatchBuffers}, {"region", Name::kRegion},
      {"reads", Name::kReads}, {"writes", Name::kWrites},
  };
  // clang-format on
  return names;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Types, attributes, source positions and operators are not nodes.
bool IsNodeType(const TVMFFITypeInfo* info) {
  const auto excluded = [](const std::string& key) {
    return key == "ir.Type" || key == "ir.Attrs" || key == "ir.Span" || key == "ir.SourceName" ||
           key == "ir.SourceMap" || key == "ir.Op";
  };
  if (excluded(TypeKeyOf(info))) return false;
  for (int32_t i = 1; i < info->type_depth; ++i) {
    if (excluded(TypeKeyOf(info->type_ancestors[i]))) return false;
  }
  return true;
}

Field::Mode ModeOf(const TVMFFIFieldInfo& info) {
  if (info.size == sizeof(void*) && info.field_static_type_index >= kTVMFFIStaticObjectBegin) {
    return Field::Mode::kPointer;
  }
  if (info.field_static_type_index == kTVMFFIInt && info.size == 4) return Field::Mode::kInt32;
  if (info.field_static_type_index == kTVMFFIInt && info.size == 8) return Field::Mode::kInt64;
  if (info.field_static_type_index == kTVMFFIFloat && info.size == 8) return Field::Mode::kFloat64;
  if (info.field_static_type_index == kTVMFFIDataType && info.size == sizeof(DLDataType)) return Field::Mode::kDType;
  if (info.size == sizeof(TVMFFIAny) && info.field_static_type_index == kTVMFFIAny) return Field::Mode::kAny;
  return Field::Mode::kGetter;
}

bool CanHoldNodes(const TVMFFIFieldInfo& info) {
  const int32_t type = info.field_static_type_index;
  return type == kTVMFFIAny || type == kTVMFFIObject || type == kTVMFFIArray || type == kTVMFFIMap ||
         type == kTVMFFIList || type == kTVMFFIDict || type >= kTVMFFIDynObjectBegin;
}

tvm::ffi::Any GetField(const TVMFFIObject* object, const TypePlan& plan, Name name) {
  tvm::ffi::Any value;
  const Field* field = plan.named[static_cast<size_t>(name)];
  if (field != nullptr) {
    TVM_FFI_CHECK_SAFE_CALL(
        field->info->getter(const_cast<void*>(FieldAddress(object, *field)), reinterpret_cast<TVMFFIAny*>(&value)));
  }
  return value;
}

}  // namespace

const TVMFFIObject* ReadNeeded(const TVMFFIObject* object, const TypePlan& plan, Name name) {
  const TVMFFIObject* found = ReadObject(object, plan, name);
  if (found == nullptr) throw GraphError("a " + plan.type_key + " lacks one of its parts");
  return found;
}

int64_t ReadInt(const TVMFFIObject* object, const TypePlan& plan, Name name, int64_t otherwise) {
  const Field* field = plan.named[static_cast<size_t>(name)];
  if (field == nullptr) return otherwise;
  if (field->mode == Field::Mode::kInt32) return *static_cast<const int32_t*>(FieldAddress(object, *field));
  if (field->mode == Field::Mode::kInt64) return *static_cast<const int64_t*>(FieldAddress(object, *field));
  return GetField(object, plan, name).as<int64_t>().value_or(otherwise);
}

double ReadNumber(const TVMFFIObject* object, const TypePlan& plan, Name name) {
  const Field* field = plan.named[static_cast<size_t>(name)];
  if (field == nullptr) return 0;
  const void* address = FieldAddress(object, *field);
  if (field->mode == Field::Mode::kFloat64) return *static_cast<const double*>(address);
  if (field->mode == Field::Mode::kAny) {
    const TVMFFIAny& value = *static_cast<const TVMFFIAny*>(address);
    if (value.type_index == kTVMFFIInt || value.type_index == kTVMFFIBool) return static_cast<double>(value.v_int64);
    if (value.type_index == kTVMFFIFloat) return value.v_float64;
    return static_cast<double>(INT64_MAX);  // stands for an integer of more than 64 bits
  }
  return static_cast<double>(ReadInt(object, plan, name, 0));
}

std::string ReadString(const TVMFFIObject* object, const TypePlan& plan, Name name) {
  const auto value = GetField(object, plan, name).as<tvm::ffi::String>();
  return value ? std::string(value->data(), value->size()) : std::string();
}

DLDataType DTypeOf(const TVMFFIObject* type, PlanCache& plans) {
  if (type == nullptr) return {0, 0, 0};
  const TypePlan& plan = plans(type->type_index);
  const Field* field = plan.named[static_cast<size_t>(Name::kDtype)];
  if (field == nullptr || (plan.kind != Kind::kPrimType && plan.kind != Kind::kBufferType)) return {0, 0, 0};
  if (field->mode == Field::Mode::kDType) return *static_cast<const DLDataType*>(FieldAddress(type, *field));
  // A BufferType holds its element type as a PrimType.
  return plan.kind == Kind::kBufferType ? DTypeOf(ReadObject(type, plan, Name::kDtype), plans) : DLDataType{0, 0, 0};
}

bool IsFloat(DLDataType dtype) { return dtype.code == kDLFloat || dtype.code == kDLBfloat || dtype.code > kDLBool; }

double Lanes(DLDataType dtype) { return std::max<double>(1.0, static_cast<int16_t>(dtype.lanes)); }

double ConstantOf(const TVMFFIObject* expr, PlanCache& plans) {
  if (expr == nullptr) return 0;
  const TypePlan& plan = plans(expr->type_index);
  return plan.kind == Kind::kIntImm ? ReadNumber(expr, plan, Name::kValue) : 0;
}

const TVMFFIObject* ReadOptional(const TVMFFIObject* object, const TypePlan& plan, Name name) {
  const tvm::ffi::Any value = GetField(object, plan, name);
  return ObjectOf(*reinterpret_cast<const TVMFFIAny*>(&value));  // kept alive by its owner
}

Registry& Registry::Global() {
  static Registry* registry = new Registry();  // never destroyed: threads can outlive static destructors
  return *registry;
}

std::string Registry::Normalise(const std::string& key) {
  static const std::set<std::string> prefixes = {"tir", "tirx", "s_tir", "ir", "prim"};
  static const std::unordered_map<std::string, std::string> aliases = {
      {"TensorLoad", "BufferLoad"},
      {"TensorRegion", "BufferRegion"},
      {"SBlock", "Block"},
      {"SBlockRealize", "BlockRealize"},
  };
  const size_t dot = key.find('.');
  std::string name = dot != std::string::npos && prefixes.count(key.substr(0, dot)) ? key.substr(dot + 1) : key;
  const auto alias = aliases.find(name);
  return alias == aliases.end() ? name : alias->second;
}

const TypePlan* Registry::Plan(int32_t type_index) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& plan = plans_[type_index];
  if (plan == nullptr) plan = MakePlan(type_index);
  return plan.get();
}

OpInfo Registry::Op(const TVMFFIObject* op, const TypePlan& plan) {
  static const std::set<std::string> control = {"if_then_else",   "likely",    "reinterpret", "address_of", "ret",
                                                "tvm_access_ptr", "vectorlow", "vectorhigh",  "undef"};
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = ops_.find(op);
  if (it == ops_.end()) {
    const std::string name = Normalise(ReadString(op, plan, Name::kName));
    it = ops_.emplace(op, OpInfo{NameIdLocked("Call." + name), control.count(name) > 0, name == "if_then_else"}).first;
  }
  return it->second;
}

int32_t Registry::NameId(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  return NameIdLocked(name);
}

int32_t Registry::NameIdLocked(const std::string& name) {
  const auto [it, is_new] = name_ids_.emplace(name, static_cast<int32_t>(names_.size()));
  if (is_new) names_.push_back(name);
  return it->second;
}

std::vector<std::string> Registry::Names() {
  std::lock_guard<std::mutex> lock(mutex_);
  return names_;
}

std::unique_ptr<TypePlan> Registry::MakePlan(int32_t type_index) {
  auto plan = std::make_unique<TypePlan>();
  plan->object_offsets.fill(-1);
  if (type_index < kTVMFFIDynObjectBegin) {
    plan->is_node = false;
    plan->kind = type_index == kTVMFFIArray || type_index == kTVMFFIList ? Kind::kSequence
                 : type_index == kTVMFFIMap || type_index == kTVMFFIDict ? Kind::kMap
                                                                         : Kind::kNotANode;
    return plan;
  }
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(type_index);
  plan->type_key = TypeKeyOf(info);
  plan->is_node = IsNodeType(info);
  const std::string name = Normalise(plan->type_key);
  plan->type_name = NameIdLocked(name);
  plan->call_name = NameIdLocked("Call." + name);

  std::vector<const TVMFFIFieldInfo*> fields;
  for (int32_t level = 1; level <= info->type_depth; ++level) {
    const TVMFFITypeInfo* owner = level < info->type_depth ? info->type_ancestors[level] : info;
    for (int32_t i = 0; i < owner->num_fields; ++i) fields.push_back(owner->fields + i);
  }
  const auto rule = std::find_if(KindRules().begin(), KindRules().end(),
                                 [&](const KindRule& item) { return plan->is_node && name == item.type_name; });
  const bool has_buffer = std::any_of(fields.begin(), fields.end(),
                                      [](const TVMFFIFieldInfo* field) { return ToString(field->name) == "buffer"; });
  size_t needed = 0;
  for (const TVMFFIFieldInfo* field : fields) {
    const std::string field_name = ToString(field->name);
    const bool hidden = rule != KindRules().end() && Contains(rule->hidden, field_name);
    // TVM 0.25 and newer call the buffer of a load or region its source.
    const auto known = FieldNames().find(field_name == "source" && !has_buffer ? "buffer" : field_name);
    const bool is_named = known != FieldNames().end() && known->second < Name::kThreadBinding;
    const Field entry{field, field->offset, ModeOf(*field), is_named, hidden};
    // In every class, these two fields are a source position and a type, which are not nodes.
    if (field_name != "span" && field_name != "ty" && CanHoldNodes(*field)) plan->children.push_back(entry);
    if (known == FieldNames().end()) continue;
    plan->named_storage.push_back(std::make_unique<Field>(entry));
    plan->named[static_cast<size_t>(known->second)] = plan->named_storage.back().get();
    if (entry.mode == Field::Mode::kPointer) plan->object_offsets[static_cast<size_t>(known->second)] = entry.offset;
    if (rule != KindRules().end()) {
      needed += Contains(rule->needed, known->first);
    }
  }
  if (rule != KindRules().end() && needed == rule->needed.size()) {
    plan->kind = rule->kind;
  } else if (plan->type_key == "ir.Op") {
    plan->kind = Kind::kOp;
  } else if (plan->type_key == "ir.PrimType") {
    plan->kind = Kind::kPrimType;
  } else if (name == "BufferType") {
    plan->kind = Kind::kBufferType;
  } else if (plan->type_key == "ir.IRModule") {
    plan->kind = Kind::kModule;
  }
  static const std::set<std::string> arithmetic = {"Add",      "Sub",      "Mul", "Div", "Mod",
                                                   "FloorDiv", "FloorMod", "Min", "Max"};
  plan->is_arithmetic = arithmetic.count(name) > 0;
  return plan;
}

}  // namespace tvm_gnn_cost
