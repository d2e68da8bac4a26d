#include "reflect_walker.h"

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tvm_gnn_cost {

const std::array<float, kLogTable> kLogs = [] {
  std::array<float, kLogTable> logs{};
  for (int i = 0; i < kLogTable; ++i) logs[static_cast<size_t>(i)] = std::log2(1.0f + static_cast<float>(i));
  return logs;
}();

void Work::AddScaled(const Work& other, double times) {
  float_ops += times * other.float_ops;
  math_calls += times * other.math_calls;
  int_ops += times * other.int_ops;
  loads += times * other.loads;
  stores += times * other.stores;
}

Walker::Functions Walker::FunctionsOf(const TVMFFIObject* module) {
  Functions functions;
  const TypePlan& module_plan = plans_(module->type_index);
  if (const TVMFFIObject* map = ReadObject(module, module_plan, Name::kFunctions)) {
    for (const auto& [var, function] : *reinterpret_cast<const tvm::ffi::MapBaseObj*>(map)) {
      const TVMFFIObject* object = ObjectOf(*reinterpret_cast<const TVMFFIAny*>(&function));
      const TVMFFIObject* name = ObjectOf(*reinterpret_cast<const TVMFFIAny*>(&var));
      if (object == nullptr || name == nullptr || plans_(object->type_index).kind != Kind::kPrimFunc) continue;
      functions.emplace_back(ReadString(name, plans_(name->type_index), Name::kNameHint), object);
    }
  }
  return functions;
}

void Walker::Run(Functions functions, bool is_tree) {
  is_tree_ = is_tree;
  first_node_ = out_.nodes.size();
  visits_ = touches_ = 0;
  analyzer_.Reset();
  loops_.clear();
  loop_bytes_.clear();
  contexts_.clear();
  buffers_.clear();
  buffer_ids_.clear();
  accesses_.clear();
  footprints_.clear();
  work_ = Work();
  moving_loops_ = 0;
  init_executions_ = 1;
  kernel_.row = -1;

  if (functions.empty()) throw GraphError("the IRModule has no PrimFunc; pass a module of TensorIR functions");
  std::sort(functions.begin(), functions.end());
  for (const auto& [name, function] : functions) {
    PushContext(Context());
    Warm(function);
    Visit(function, {-1, 0, 0, false});
    contexts_.pop_back();
  }
  Finish();
}

// Prefetches the objects of a function before the walk. A population is larger than the caches, and cache misses took
// half of the walk's time. In breadth-first order, many objects are prefetched before the first one is read, so that
// their cache misses overlap, which they do not in the depth-first walk.
void Walker::Warm(const TVMFFIObject* root) {
  constexpr size_t kMaxObjects = size_t{1} << 14;
  queue_.clear();
  queue_.push_back(root);
  const auto push = [&](const TVMFFIObject* object) {
    if (object == nullptr) return;
    Prefetch(object);
    queue_.push_back(object);
  };
  for (size_t next = 0; next < queue_.size() && queue_.size() < kMaxObjects; ++next) {
    const TVMFFIObject* object = queue_[next];
    const TypePlan& plan = plans_(object->type_index);
    if (plan.kind == Kind::kSequence) {
      const TVMFFISeqCell& cell = Sequence(object);
      const auto* items = static_cast<const TVMFFIAny*>(cell.data);
      for (int64_t i = 0; i < std::min<int64_t>(cell.size, 64); ++i) push(ObjectOf(items[i]));
    } else if (plan.is_node) {
      for (const Field& field : plan.children) {
        if (field.mode != Field::Mode::kPointer || (field.hidden && !field.is_named && !is_tree_)) continue;
        push(*static_cast<const TVMFFIObject* const*>(FieldAddress(object, field)));
      }
    }
  }
}

void Walker::PushContext(Context context) {
  context.row = static_cast<int32_t>(out_.contexts.size()) / kContextSize;
  for (const double product :
       {context.iterations, context.parallel, context.vectorized, context.unrolled, context.threads}) {
    out_.contexts.push_back(Log(product));
  }
  out_.contexts.push_back(Log(context.loop_depth));
  out_.contexts.push_back(Log(context.unroll_max_step));
  out_.contexts.push_back(static_cast<float>(context.unroll_explicit));
  contexts_.push_back(context);
}

int32_t Walker::Emit(const TVMFFIObject* object, const TypePlan& plan, const Place& place) {
  const auto id = static_cast<int32_t>(out_.nodes.size() - first_node_);
  const TVMFFIObject* type = ReadObject(object, plan, Name::kTy);
  DLDataType dtype{0, 0, 0};
  if (type != nullptr) {
    // Nearly all types are PrimTypes, so the offset of their dtype is cached.
    if (type->type_index == prim_type_index_) {
      dtype = *reinterpret_cast<const DLDataType*>(reinterpret_cast<const char*>(type) + prim_dtype_offset_);
    } else {
      dtype = DTypeOf(type, plans_);
      const TypePlan& type_plan = plans_(type->type_index);
      const Field* field = type_plan.named[static_cast<size_t>(Name::kDtype)];
      if (type_plan.kind == Kind::kPrimType && field != nullptr && field->mode == Field::Mode::kDType) {
        prim_type_index_ = type->type_index;
        prim_dtype_offset_ = field->offset;
      }
    }
  }
  out_.nodes.push_back(
      {plan.type_name, place.parent, contexts_.back().row, -1, -1, -1, kernel_.row, place.depth, dtype, {0, 0}});
  if (plan.is_arithmetic && !place.hidden) {
    (IsFloat(dtype) ? work_.float_ops : work_.int_ops) += Lanes(dtype);
  }
  return id;
}

void Walker::Visit(const TVMFFIObject* object, const Place& place) {
  const TypePlan& plan = plans_(object->type_index);
  if (place.depth >= kMaxDepth || place.nest >= kMaxNest) throw GraphError(TooDeep(plan.type_key));
  if (++visits_ > kMaxVisits) throw GraphError(TooLarge());
  if (plan.kind == Kind::kSequence) return VisitItems(object, place);
  if (plan.kind == Kind::kMap) return VisitMap(object, place);
  if (!plan.is_node) return;
  switch (plan.kind) {
    case Kind::kVar: return VisitVar(object, plan, place);
    case Kind::kBufferLoad: return VisitLoad(object, plan, place);
    case Kind::kFor: return VisitLoop(object, plan, place);
    case Kind::kBlockRealize: return VisitBlockRealize(object, plan, place);
    case Kind::kBlock: return VisitBlock(object, plan, place);
    case Kind::kBufferStore: return VisitStore(object, plan, place);
    case Kind::kCall: return VisitCall(object, plan, place);
    case Kind::kPrimFunc: return VisitPrimFunc(object, plan, place);
    case Kind::kAttr: return VisitAttr(object, plan, place);
    case Kind::kBufferRealize: return VisitBufferRealize(object, plan, place);
    default: break;
  }
  const int32_t id = Emit(object, plan, place);
  switch (plan.kind) {
    case Kind::kIntImm:
    case Kind::kFloatImm:
      At(id).constants[0] = SignedLog(ReadNumber(object, plan, Name::kValue));
      At(id).constants[1] = 1;
      return;
    case Kind::kRange:
      At(id).constants[0] = SignedLog(ConstantOf(ReadObject(object, plan, Name::kExtent), plans_));
      At(id).constants[1] = SignedLog(ConstantOf(ReadObject(object, plan, Name::kMin), plans_));
      break;
    case Kind::kBind:
    case Kind::kLet: {
      // Bound until the end of the enclosing loop or block, which is longer than necessary but harmless.
      const Form form = analyzer_.Analyze(ReadObject(object, plan, Name::kValue), place.depth + 1);
      analyzer_.Bind(ReadObject(object, plan, Name::kVar), form);
      break;
    }
    case Kind::kSelect:
      if (!IsLookUp(object, plan)) break;
      // Hidden: nodes below it are ignored in both details.
      if (is_tree_) VisitChildren(object, plan, id, {place.parent, place.depth, place.nest, true});
      return;
    default: break;
  }
  VisitChildren(object, plan, id, place);
}

bool Walker::IsLookUp(const TVMFFIObject* select, const TypePlan& plan) {
  const auto is_immediate = [&](const TVMFFIObject* value) {
    const Kind kind = value == nullptr ? Kind::kNotANode : plans_(value->type_index).kind;
    return kind == Kind::kIntImm || kind == Kind::kFloatImm;
  };
  int length = 0;
  for (const TypePlan* at = &plan; at->kind == Kind::kSelect; at = &plans_(select->type_index)) {
    if (++length > kMaxDepth) throw GraphError(TooDeep(plan.type_key));
    if (!is_immediate(ReadObject(select, *at, Name::kTrueValue))) return false;
    select = ReadObject(select, *at, Name::kFalseValue);
    if (is_immediate(select)) return true;
    if (select == nullptr) return false;
  }
  return false;
}

void Walker::VisitChildren(const TVMFFIObject* object, const TypePlan& plan, int32_t id, const Place& place) {
  for (const Field& field : plan.children) {
    if (field.hidden && !is_tree_) continue;
    const Place below{id, place.depth + 1, place.nest + 1, place.hidden || field.hidden};
    if (field.mode == Field::Mode::kPointer) {
      const auto* child = *static_cast<const TVMFFIObject* const*>(FieldAddress(object, field));
      if (child != nullptr) Visit(child, below);
    } else {
      VisitField(object, field, below);
    }
  }
}

void Walker::VisitField(const TVMFFIObject* object, const Field& field, const Place& place) {
  if (field.mode == Field::Mode::kPointer) {
    const auto* child = *static_cast<const TVMFFIObject* const*>(FieldAddress(object, field));
    if (child != nullptr) Visit(child, place);
    return;
  }
  if (field.mode == Field::Mode::kAny) {
    const TVMFFIObject* child = ObjectOf(*static_cast<const TVMFFIAny*>(FieldAddress(object, field)));
    if (child != nullptr) Visit(child, place);
    return;
  }
  tvm::ffi::Any value;
  TVM_FFI_CHECK_SAFE_CALL(
      field.info->getter(const_cast<void*>(FieldAddress(object, field)), reinterpret_cast<TVMFFIAny*>(&value)));
  const TVMFFIObject* child = ObjectOf(*reinterpret_cast<const TVMFFIAny*>(&value));
  if (child != nullptr) Visit(child, place);
}

void Walker::VisitItems(const TVMFFIObject* object, const Place& place) {
  const TVMFFISeqCell& cell = Sequence(object);
  const auto* items = static_cast<const TVMFFIAny*>(cell.data);
  for (int64_t i = 0; i < cell.size; ++i) {
    const TVMFFIObject* child = ObjectOf(items[i]);
    if (child != nullptr) Visit(child, {place.parent, place.depth, place.nest + 1, place.hidden});
  }
}

void Walker::VisitMap(const TVMFFIObject* object, const Place& place) {
  const auto* map = reinterpret_cast<const tvm::ffi::MapBaseObj*>(object);
  if (map->size() == 0) return;
  const Place below{place.parent, place.depth, place.nest + 1, place.hidden};
  for (const auto& [key, value] : *map) {
    for (const tvm::ffi::Any* item : {&key, &value}) {
      const TVMFFIObject* child = ObjectOf(*reinterpret_cast<const TVMFFIAny*>(item));
      if (child != nullptr) Visit(child, below);
    }
  }
}

void Walker::VisitPrimFunc(const TVMFFIObject* object, const TypePlan& plan, const Place& place) {
  const TVMFFISeqCell& params = Sequence(ReadNeeded(object, plan, Name::kParams));
  const auto* items = static_cast<const TVMFFIAny*>(params.data);
  for (int64_t i = 0; i < params.size; ++i) {
    const TVMFFIObject* param = ObjectOf(items[i]);
    if (param == nullptr) continue;
    const TVMFFIObject* type = ReadObject(param, plans_(param->type_index), Name::kTy);
    if (type != nullptr && plans_(type->type_index).kind == Kind::kBufferType) {
      buffers_[static_cast<size_t>(BufferOf(param))].is_param = true;
    }
  }
  VisitChildren(object, plan, Emit(object, plan, place), place);
}

void Walker::VisitVar(const TVMFFIObject* object, const TypePlan& plan, const Place& place) {
  const int32_t id = Emit(object, plan, place);
  const TVMFFIObject* type = ReadObject(object, plan, Name::kTy);
  if (type == nullptr) return;
  const TypePlan& type_plan = plans_(type->type_index);
  if (type_plan.kind != Kind::kBufferType) return;
  static const int32_t buffer_name = Registry::Global().NameId("Buffer");
  const int32_t index = BufferOf(object);
  Buffer& buffer = buffers_[static_cast<size_t>(index)];
  At(id).type = buffer_name;
  At(id).constants[0] = Log(buffer.elements);
  At(id).constants[1] = static_cast<float>(buffer.shape.size());
  if (std::exchange(buffer.is_declared, true) || !is_tree_) return;
  for (const Name name : {Name::kShape, Name::kStrides, Name::kElemOffset}) {
    const TVMFFIObject* child = ReadObject(type, type_plan, name);
    if (child != nullptr) Visit(child, {id, place.depth + 1, place.nest + 1, true});
  }
}

void Walker::VisitCall(const TVMFFIObject* object, const TypePlan& plan, const Place& place) {
  const int32_t id = Emit(object, plan, place);
  const TVMFFIObject* op = ReadObject(object, plan, Name::kOp);
  if (op != nullptr) {
    const TypePlan& op_plan = plans_(op->type_index);
    if (op_plan.kind == Kind::kOp) {
      const OpInfo& info = plans_.Op(op, op_plan);
      At(id).type = info.type_name;
      if (!place.hidden && !info.is_control && IsFloat(At(id).dtype)) work_.math_calls += Lanes(At(id).dtype);
    } else {
      At(id).type = op_plan.call_name;
    }
  }
  VisitChildren(object, plan, id, place);
}

void Walker::VisitStore(const TVMFFIObject* object, const TypePlan& plan, const Place& place) {
  const int32_t id = Emit(object, plan, place);
  const TVMFFIObject* var = ReadNeeded(object, plan, Name::kBuffer);
  const TVMFFIObject* type = ReadObject(var, plans_(var->type_index), Name::kTy);
  At(id).dtype = DTypeOf(type, plans_);
  const size_t first_access = accesses_.size();
  const Work outer = std::exchange(work_, Work());
  VisitChildren(object, plan, id, place);
  if (!place.hidden) {
    work_.stores += 1;
    AnalyzeAccess(id, var, ReadNeeded(object, plan, Name::kIndices), true, place.depth);
    const Access& store = accesses_.back();
    for (size_t i = first_access; i + 1 < accesses_.size(); ++i) {
      if (accesses_[i].buffer != store.buffer) continue;
      for (const int32_t row : {accesses_[i].row, store.row}) {
        out_.accesses[static_cast<size_t>(row) * kAccessSize + v_is_update - kAccessBegin] = 1;
      }
    }
    const double footprint = TouchedBytes(first_access, loops_.size());
    WriteWork(id, work_, contexts_.back().iterations, footprint, footprint, true, 1);
  }
  work_.AddScaled(outer, 1);
}

void Walker::VisitLoad(const TVMFFIObject* object, const TypePlan& plan, const Place& place) {
  const int32_t id = Emit(object, plan, place);
  if (!place.hidden) {
    work_.loads += 1;
    AnalyzeAccess(id, ReadNeeded(object, plan, Name::kBuffer), ReadNeeded(object, plan, Name::kIndices), false,
                  place.depth);
  }
  VisitChildren(object, plan, id, place);
}

}  // namespace tvm_gnn_cost
