// Visits loops, blocks and annotations, which change the context of the nodes inside.
#include <tvm/ffi/any.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <utility>

#include "reflect_walker.h"

namespace tvm_gnn_cost {
namespace {

constexpr int64_t kCommReduce = 2;  // tvm::tirx::IterVarType

// Reads an unroll annotation into the context.
void ReadPragma(const std::string& name, double number, Context& context) {
  const bool is_explicit = name == "meta_schedule.unroll_explicit";
  if (is_explicit || name == "meta_schedule.unroll_implicit" || name == "pragma_auto_unroll_max_step") {
    context.unroll_max_step = std::max(0.0, number);
  }
  if (is_explicit || name == "pragma_unroll_explicit") context.unroll_explicit = number != 0 ? 1 : 0;
}

}  // namespace

void Walker::ReadPragmas(const TVMFFIObject* object, const TypePlan& plan, Context& context) {
  const TVMFFIObject* map = ReadObject(object, plan, Name::kAnnotations);
  if (map == nullptr || plans_(map->type_index).kind != Kind::kMap) return;
  const auto* annotations = reinterpret_cast<const tvm::ffi::MapBaseObj*>(map);
  if (annotations->size() == 0) return;
  for (const auto& [key, value] : *annotations) {
    const auto name = key.as<tvm::ffi::String>();
    if (!name) continue;
    const TVMFFIObject* object_value = ObjectOf(*reinterpret_cast<const TVMFFIAny*>(&value));
    if (kernel_.row >= 0 && ReadPipeline(*name, object_value)) continue;
    double number = 0;
    if (const auto integer = value.as<int64_t>()) {
      number = static_cast<double>(*integer);
    } else if (object_value != nullptr) {
      const TypePlan& value_plan = plans_(object_value->type_index);
      if (value_plan.kind != Kind::kIntImm) continue;
      number = ReadNumber(object_value, value_plan, Name::kValue);
    }
    ReadPragma(*name, number, context);
  }
}

// TE schedules annotate a loop with a statement around it.
void Walker::VisitAttr(const TVMFFIObject* object, const TypePlan& plan, const Place& place) {
  Context context = contexts_.back();
  const TVMFFIObject* value = ReadObject(object, plan, Name::kValue);
  ReadPragma(ReadString(object, plan, Name::kAttrKey), ConstantOf(value, plans_), context);
  PushContext(context);
  VisitChildren(object, plan, Emit(object, plan, place), place);
  contexts_.pop_back();
}

// A BufferRealize allocates a part of the declared shape; strides are those of that part.
void Walker::VisitBufferRealize(const TVMFFIObject* object, const TypePlan& plan, const Place& place) {
  const TVMFFIObject* bounds = ReadNeeded(object, plan, Name::kBounds);
  Buffer& buffer = buffers_[static_cast<size_t>(BufferOf(ReadNeeded(object, plan, Name::kBuffer)))];
  const TVMFFISeqCell& ranges = Sequence(bounds);
  std::vector<int64_t> shape = buffer.shape;
  for (size_t dim = 0; dim < std::min(shape.size(), static_cast<size_t>(ranges.size)); ++dim) {
    const TVMFFIObject* range = ObjectOf(static_cast<const TVMFFIAny*>(ranges.data)[dim]);
    if (range == nullptr) continue;
    const double extent = ConstantOf(ReadObject(range, plans_(range->type_index), Name::kExtent), plans_);
    if (extent > 0) shape[dim] = ToInteger(extent);
  }
  SetShape(buffer, std::move(shape));
  VisitChildren(object, plan, Emit(object, plan, place), place);
}

void Walker::VisitLoop(const TVMFFIObject* object, const TypePlan& plan, const Place& place) {
  const IndexAnalyzer::Scope scope = analyzer_.Mark();
  const double bound = analyzer_.Maximum(analyzer_.Analyze(ReadObject(object, plan, Name::kExtent), place.depth + 1));
  analyzer_.Release(scope);
  const int64_t extent = std::clamp<int64_t>(ToInteger(bound), 1, 1'000'000'000'000'000);
  const auto level = static_cast<int32_t>(loops_.size());
  const Form min = analyzer_.Analyze(ReadObject(object, plan, Name::kMin), place.depth + 1);
  analyzer_.BindLoop(ReadObject(object, plan, Name::kLoopVar), level, extent, min);

  const auto kind = static_cast<int>(std::clamp<int64_t>(ReadInt(object, plan, Name::kKind, kSerial), 0, 4));
  const ThreadAxis threads = kind == kThreadBinding ? ThreadAxisOf(object, plan) : ThreadAxis();
  const bool is_kernel = threads.thread != Thread::kNone && kernel_.row < 0;
  if (is_kernel) OpenKernel();
  if (threads.thread != Thread::kNone) {
    int64_t& most = kernel_.extents[static_cast<size_t>(threads.thread)][threads.axis];
    most = std::max(most, extent);
  }
  const double outer_iterations = contexts_.back().iterations;
  Context context = contexts_.back();
  const auto times = static_cast<double>(extent);
  context.iterations *= times;
  if (kind == kParallel) context.parallel *= times;
  if (kind == kVectorized) context.vectorized *= times;
  if (kind == kUnrolled) context.unrolled *= times;
  if (kind == kThreadBinding) context.threads *= times;
  ++context.loop_depth;
  ReadPragmas(object, plan, context);
  PushContext(context);

  const int32_t id = Emit(object, plan, place);
  At(id).constants[0] = Log(times);
  At(id).constants[1] = SignedLog(min.base);
  At(id).own = static_cast<int32_t>(out_.owns.size()) / kOwnSize;
  out_.owns.resize(out_.owns.size() + kOwnSize, 0.0f);
  float* own = out_.owns.data() + out_.owns.size() - kOwnSize - kOwnBegin;
  own[v_extent] = Log(times);
  own[v_kind_serial + kind] = 1;

  const auto record = static_cast<int32_t>(loop_bytes_.size());
  loop_bytes_.push_back(0);
  loops_.push_back({id, extent, kind, record, threads});
  moving_loops_ += extent > 1;
  const int64_t loops_before = moving_loops_;
  const size_t first_access = accesses_.size();
  const Work outer = std::exchange(work_, Work());
  VisitChildren(object, plan, id, place);
  loops_.pop_back();
  contexts_.pop_back();
  analyzer_.Release(scope);

  Work once;
  once.AddScaled(work_, times);
  work_ = outer;
  work_.AddScaled(once, 1);
  const double body = TouchedBytes(first_access, static_cast<size_t>(level) + 1);
  loop_bytes_[static_cast<size_t>(record)] = body;
  const TVMFFIObject* child = ReadNeeded(object, plan, Name::kBody);
  const TypePlan& child_plan = plans_(child->type_index);
  const int64_t children =
      child_plan.kind == Kind::kSeqStmt ? Sequence(ReadNeeded(child, child_plan, Name::kSeq)).size : 1;
  WriteWork(id, once, outer_iterations, TouchedBytes(first_access, static_cast<size_t>(level)), body,
            moving_loops_ == loops_before, children);
  if (is_kernel) CloseKernel();
}

void Walker::VisitBlockRealize(const TVMFFIObject* object, const TypePlan& plan, const Place& place) {
  const int32_t id = Emit(object, plan, place);
  const IndexAnalyzer::Scope scope = analyzer_.Mark();
  const TVMFFIObject* block = ReadNeeded(object, plan, Name::kBlock);
  const TypePlan& block_plan = plans_(block->type_index);
  const TVMFFIObject* iter_vars = ReadObject(block, block_plan, Name::kIterVars);
  const TVMFFIObject* iter_values = ReadObject(object, plan, Name::kIterValues);
  uint64_t spatial_deps = 0;
  uint64_t reduce_deps = 0;
  int spatial = 0;
  int reduce = 0;
  const double operations = analyzer_.operations();
  if (iter_vars != nullptr && iter_values != nullptr) {
    const TVMFFISeqCell& vars = Sequence(iter_vars);
    const TVMFFISeqCell& values = Sequence(iter_values);
    for (int64_t i = 0; i < std::min(vars.size, values.size); ++i) {
      const TVMFFIObject* iter_var = ObjectOf(static_cast<const TVMFFIAny*>(vars.data)[i]);
      if (iter_var == nullptr) continue;
      const TypePlan& iter_plan = plans_(iter_var->type_index);
      Form form = analyzer_.Analyze(ObjectOf(static_cast<const TVMFFIAny*>(values.data)[i]), place.depth + 1);
      analyzer_.Simplify(form);
      analyzer_.Bind(ReadObject(iter_var, iter_plan, Name::kVar), form);
      const bool is_reduction = ReadInt(iter_var, iter_plan, Name::kIterType, 0) == kCommReduce;
      (is_reduction ? reduce_deps : spatial_deps) |= form.deps;
      ++(is_reduction ? reduce : spatial);
    }
  }
  work_.int_ops += analyzer_.operations() - operations;

  At(id).own = static_cast<int32_t>(out_.owns.size()) / kOwnSize;
  out_.owns.resize(out_.owns.size() + kOwnSize, 0.0f);
  float* own = out_.owns.data() + out_.owns.size() - kOwnSize - kOwnBegin;
  own[v_spatial_iters] = Log(spatial);
  own[v_reduce_iters] = Log(reduce);
  own[v_has_init] = ReadOptional(block, block_plan, Name::kInit) != nullptr ? 1 : 0;
  own[v_has_predicate] = ConstantOf(ReadObject(object, plan, Name::kPredicate), plans_) != 0 ? 0 : 1;

  init_executions_ = 1;
  for (size_t level = 0; level < loops_.size() && level < 64; ++level) {
    if ((reduce_deps & ~spatial_deps) >> level & 1) init_executions_ *= static_cast<double>(loops_[level].extent);
  }
  const size_t first_access = accesses_.size();
  const Work outer = std::exchange(work_, Work());
  VisitChildren(object, plan, id, place);
  const double footprint = TouchedBytes(first_access, loops_.size());
  WriteWork(id, work_, contexts_.back().iterations, footprint, footprint, true, 1);
  work_.AddScaled(outer, 1);
  analyzer_.Release(scope);
}

void Walker::VisitBlock(const TVMFFIObject* object, const TypePlan& plan, const Place& place) {
  const double init_executions = std::exchange(init_executions_, 1);
  Context context = contexts_.back();
  ReadPragmas(object, plan, context);
  if (kernel_.row >= 0) ReadKernelBlock(object, plan, place.depth);
  PushContext(context);
  const int32_t id = Emit(object, plan, place);
  const size_t first_access = accesses_.size();
  const Work outer = std::exchange(work_, Work());
  for (const Field& field : plan.children) {
    if (field.hidden && !is_tree_) continue;
    const Place below{id, place.depth + 1, place.nest + 1, field.hidden || place.hidden};
    const bool is_init = field.info == plan.named[static_cast<size_t>(Name::kInit)]->info;
    if (!is_init) {
      VisitField(object, field, below);
      continue;
    }
    // It runs in the first iteration of the reduction only.
    Context init_context = context;
    init_context.iterations /= init_executions;
    PushContext(init_context);
    const Work before = std::exchange(work_, Work());
    VisitField(object, field, below);
    const Work init = std::exchange(work_, before);
    work_.AddScaled(init, 1 / init_executions);
    contexts_.pop_back();
  }
  const double footprint = TouchedBytes(first_access, loops_.size());
  WriteWork(id, work_, context.iterations, footprint, footprint, true, 1);
  work_.AddScaled(outer, 1);
  contexts_.pop_back();
}

}  // namespace tvm_gnn_cost
