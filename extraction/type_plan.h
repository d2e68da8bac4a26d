// How to read an object of one type: worked out by tvm-ffi's reflection once per type index, then used for every node.
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

// What the walk and the index analysis must know a type as; every other node is kGeneric.
enum class Kind : uint8_t {
  kNotANode, kSequence, kMap, kGeneric, kPrimFunc, kFor, kBlockRealize, kBlock, kIterVar, kRange, kBufferStore,
  kBufferLoad, kBind, kLet, kVar, kIntImm, kFloatImm, kAdd, kSub, kMul, kFloorDiv, kFloorMod, kMin, kMax,
  kCast, kRamp, kBroadcast, kSelect, kCall, kOp, kPrimType, kBufferType, kModule, kSeqStmt, kAttr, kBufferRealize,
};

// The fields that are read by name.
enum class Name : uint8_t {
  kTy, kBody, kLoopVar, kMin, kExtent, kKind, kAnnotations, kIterValues, kPredicate, kBlock, kIterVars, kInit, kBuffer,
  kValue, kIndices, kParams, kVar, kIterType, kA, kB, kBase, kCondition, kTrueValue, kFalseValue, kOp, kArgs, kDtype,
  kShape, kStrides, kElemOffset, kFunctions, kSeq, kNameHint, kName, kAttrKey, kBounds, kCount,
};

struct Field {
  const TVMFFIFieldInfo* info;
  int64_t offset;
  // An object reference and an Any are read where they lie, with no reference count touched (atomics would be a third
  // of the walk, and two threads would fight over shared objects); the rest goes through the getter.
  // So are plain numbers and dtypes, by their declared type and size.
  enum class Mode : uint8_t { kPointer, kAny, kInt32, kInt64, kFloat64, kDType, kGetter } mode;
  bool is_named;  // one of Name: the analysis reads it even where it is hidden
  bool hidden;    // what lies below it is left out of detail="statements"
};

struct TypePlan {
  Kind kind = Kind::kGeneric;
  bool is_node = true;
  bool is_arithmetic = false;    // one arithmetic operation: a floating-point or an integer one, by its dtype
  int32_t type_name = -1;        // NameTable index of the normalised name
  int32_t call_name = -1;        // that of a Call whose callee is of this type
  std::string type_key;          // of a copy (legacy_mirror.h) the original's
  std::vector<Field> children;   // fields that can hold nodes, ancestors' first
  // Where a plain reference lies; -1 where the type has no such field or keeps it otherwise.
  std::array<int64_t, static_cast<size_t>(Name::kCount)> object_offsets;
  std::array<const Field*, static_cast<size_t>(Name::kCount)> named{};
  std::vector<std::unique_ptr<Field>> named_storage;
};

struct OpInfo {
  int32_t type_name;  // of a Call of it
  bool is_control;    // moves or chooses values and computes nothing
  bool chooses;       // if_then_else: arguments are condition, true value, false value
};

// Type names by number, plans by type index and operators by address, filled on first sight and kept for the process.
// Each worker holds a PlanCache in front, so that the lock is taken once per type and worker.
class Registry {
 public:
  static Registry& Global();
  const TypePlan* Plan(int32_t type_index);
  OpInfo Op(const TVMFFIObject* op, const TypePlan& plan);
  int32_t NameId(const std::string& name);
  std::vector<std::string> Names();
  // The plain name of a type key or operator: the same for every TVM that has the node.
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

// The object that a plain reference field holds; null for an empty one and for a field that this type lacks.
inline const TVMFFIObject* ReadObject(const TVMFFIObject* object, const TypePlan& plan, Name name) {
  const int64_t offset = plan.object_offsets[static_cast<size_t>(name)];
  if (offset < 0) return nullptr;
  return *reinterpret_cast<const TVMFFIObject* const*>(reinterpret_cast<const char*>(object) + offset);
}

// An int, bool or IntImm-like number held by a field; `otherwise` for anything else.
int64_t ReadInt(const TVMFFIObject* object, const TypePlan& plan, Name name, int64_t otherwise);
double ReadNumber(const TVMFFIObject* object, const TypePlan& plan, Name name);
std::string ReadString(const TVMFFIObject* object, const TypePlan& plan, Name name);

inline const TVMFFIObject* ObjectOf(const TVMFFIAny& value) {
  return value.type_index >= kTVMFFIStaticObjectBegin ? value.v_obj : nullptr;
}

// Whether the field holds anything.
bool HasObject(const TVMFFIObject* object, const TypePlan& plan, Name name);
// The element type that a PrimType or a BufferType stands for; bits = 0 for another type and for null.
DLDataType DTypeOf(const TVMFFIObject* type, PlanCache& plans);
bool IsFloat(DLDataType dtype);
double Lanes(DLDataType dtype);
// The value of an integer immediate, 0 for anything else.
double ConstantOf(const TVMFFIObject* expr, PlanCache& plans);

inline const TVMFFISeqCell& Sequence(const TVMFFIObject* object) {
  return *reinterpret_cast<const TVMFFISeqCell*>(object + 1);
}

// Asks the memory for an object before it is read. Most are smaller than two cache lines and lie across two.
inline void Prefetch(const TVMFFIObject* object) {
  __builtin_prefetch(object);
  __builtin_prefetch(reinterpret_cast<const char*>(object) + 63);
}

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_TYPE_PLAN_H_
