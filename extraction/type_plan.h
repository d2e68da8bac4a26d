// How objects of a type are read: computed once per type index from tvm-ffi's reflection, and used for every node.
#ifndef TVM_GNN_COST_EXTRACTION_TYPE_PLAN_H_
#define TVM_GNN_COST_EXTRACTION_TYPE_PLAN_H_

#include <tvm/ffi/c_api.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace tvm_gnn_cost {

// The types that the walk and the index analysis treat specially; every other node is kGeneric.
// clang-format off
enum class Kind : uint8_t {
  kNotANode, kSequence, kMap, kGeneric, kPrimFunc, kFor, kBlockRealize, kBlock, kIterVar, kRange, kBufferStore,
  kBufferLoad, kBind, kLet, kVar, kIntImm, kFloatImm, kAdd, kSub, kMul, kFloorDiv, kFloorMod, kMin, kMax,
  kCast, kRamp, kBroadcast, kSelect, kCall, kOp, kPrimType, kBufferType, kModule, kSeqStmt, kAttr, kBufferRealize,
};
// clang-format on

// Fields that are read by name.
// clang-format off
enum class Name : uint8_t {
  kTy, kBody, kLoopVar, kMin, kExtent, kKind, kAnnotations, kIterValues, kPredicate, kBlock, kIterVars, kInit, kBuffer,
  kValue, kIndices, kParams, kVar, kIterType, kA, kB, kBase, kCondition, kTrueValue, kFalseValue, kOp, kArgs, kDtype,
  kShape, kStrides, kElemOffset, kFunctions, kSeq, kNameHint, kName, kAttrKey, kBounds,
  // From here on: read in GPU programs only.
  kThreadBinding, kThreadTag, kStorageScope, kMatchBuffers, kSource, kRegion, kReads, kWrites, kCount,
};
// clang-format on

struct Field {
  const TVMFFIFieldInfo* info;
  int64_t offset;
  // Object references, Anys, numbers and dtypes are read in place, the rest through the getter. Getters count
  // references: these atomics would take a third of the walk's time, and threads would contend for shared objects.
  enum class Mode : uint8_t { kPointer, kAny, kInt32, kInt64, kFloat64, kDType, kGetter } mode;
  bool is_named;  // one of Name before kThreadBinding: read even if it is hidden
  bool hidden;    // detail="statements" omits the nodes below it
};

struct TypePlan {
  Kind kind = Kind::kGeneric;
  bool is_node = true;
  bool is_arithmetic = false;   // an arithmetic operation; floating-point or integer by its dtype
  int32_t type_name = -1;       // the normalized name's index in the Registry
  int32_t call_name = -1;       // the same of a Call whose callee is of this type
  std::string type_key;         // the original's for the type of a copy (auto_scheduler_mirror.h)
  std::vector<Field> children;  // fields that can hold nodes, ancestors' first
  // Offsets of references; -1 if the type has no such field or it is not a reference.
  std::array<int64_t, static_cast<size_t>(Name::kCount)> object_offsets;
  std::array<const Field*, static_cast<size_t>(Name::kCount)> named{};
  std::vector<std::unique_ptr<Field>> named_storage;
};

struct OpInfo {
  int32_t type_name;  // of a Call of this operator
  bool is_control;    // it moves or selects values without computing
  bool chooses;       // it is if_then_else(condition, true value, false value)
};

// Type names by index, plans by type index and operators by address, each added at its first occurrence. Each worker
// has a PlanCache in front of it, so that the lock is taken once per type and worker.
class Registry {
 public:
  static Registry& Global();
  const TypePlan* Plan(int32_t type_index);
  OpInfo Op(const TVMFFIObject* op, const TypePlan& plan);
  int32_t NameId(const std::string& name);
  std::vector<std::string> Names();
  // The name of a type or operator, normalized across TVM versions.
  static std::string Normalise(const std::string& key);

 private:
  std::unique_ptr<TypePlan> MakePlan(int32_t type_index);
  int32_t NameIdLocked(const std::string& name);

  std::mutex mutex_;
  std::unordered_map<int32_t, std::unique_ptr<TypePlan>> plans_;
  std::unordered_map<const TVMFFIObject*, OpInfo> ops_;
  std::unordered_map<std::string, int32_t> name_ids_;
  std::vector<std::string> names_;
};

class PlanCache {
 public:
  const TypePlan& operator()(int32_t type_index) {
    const auto index = static_cast<size_t>(type_index);
    if (index < plans_.size() && plans_[index] != nullptr) return *plans_[index];
    return Load(index);
  }
  const OpInfo& Op(const TVMFFIObject* op, const TypePlan& plan) {
    auto it = ops_.find(op);
    if (it == ops_.end()) it = ops_.emplace(op, Registry::Global().Op(op, plan)).first;
    return it->second;
  }

 private:
  const TypePlan& Load(size_t index) {
    if (index >= plans_.size()) plans_.resize(index + 64, nullptr);
    return *(plans_[index] = Registry::Global().Plan(static_cast<int32_t>(index)));
  }
  std::vector<const TypePlan*> plans_;
  std::unordered_map<const TVMFFIObject*, OpInfo> ops_;
};

inline const void* FieldAddress(const TVMFFIObject* object, const Field& field) {
  return reinterpret_cast<const char*>(object) + field.offset;
}

// The object in a reference field; null if the field is empty or the type lacks it.
inline const TVMFFIObject* ReadObject(const TVMFFIObject* object, const TypePlan& plan, Name name) {
  const int64_t offset = plan.object_offsets[static_cast<size_t>(name)];
  if (offset < 0) return nullptr;
  return *reinterpret_cast<const TVMFFIObject* const*>(reinterpret_cast<const char*>(object) + offset);
}

// The same for a required field. Throws GraphError for null, which a damaged file can contain.
const TVMFFIObject* ReadNeeded(const TVMFFIObject* object, const TypePlan& plan, Name name);

// The integer in a field; `otherwise` without one.
int64_t ReadInt(const TVMFFIObject* object, const TypePlan& plan, Name name, int64_t otherwise);
double ReadNumber(const TVMFFIObject* object, const TypePlan& plan, Name name);
std::string ReadString(const TVMFFIObject* object, const TypePlan& plan, Name name);

inline const TVMFFIObject* ObjectOf(const TVMFFIAny& value) {
  return value.type_index >= kTVMFFIStaticObjectBegin ? value.v_obj : nullptr;
}

// The object in a field that may be empty (an Optional); null if it is, or if the type lacks it.
const TVMFFIObject* ReadOptional(const TVMFFIObject* object, const TypePlan& plan, Name name);
// The element type of a PrimType or BufferType; bits = 0 for any other type and for null.
DLDataType DTypeOf(const TVMFFIObject* type, PlanCache& plans);
bool IsFloat(DLDataType dtype);
double Lanes(DLDataType dtype);
// The value of an integer immediate; 0 for anything else.
double ConstantOf(const TVMFFIObject* expr, PlanCache& plans);

// The same for an integer that may be stored directly.
inline double IntegerOf(const TVMFFIAny& value, PlanCache& plans) {
  return value.type_index == kTVMFFIInt ? static_cast<double>(value.v_int64) : ConstantOf(ObjectOf(value), plans);
}

inline const TVMFFISeqCell& Sequence(const TVMFFIObject* object) {
  return *reinterpret_cast<const TVMFFISeqCell*>(object + 1);
}

// Prefetches two cache lines: most objects are smaller but straddle two lines.
inline void Prefetch(const TVMFFIObject* object) {
  __builtin_prefetch(object);
  __builtin_prefetch(reinterpret_cast<const char*>(object) + 63);
}

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_TYPE_PLAN_H_
